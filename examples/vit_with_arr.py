"""Train a small vision transformer with ReLU and ARR, which draws the responses of a class together.

python examples/vit_with_arr.py                      CIFAR-10, which is downloaded once
python examples/vit_with_arr.py --neurons raa+arr    DNRT, or whatever companion.rethink knows
python examples/vit_with_arr.py --smoke              scikit-learn's digits, in seconds
"""

import argparse

import timm
import torch
from torch.nn import functional as F

import companion
from companion.study import datasets, training


def main() -> None:
    """Print the accuracy on the test images after every epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neurons", default="relu+arr")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    epochs = 5 if arguments.smoke else arguments.epochs
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)

    data = datasets.load("digits" if arguments.smoke else "cifar10", validation=0).to(device)
    channels, size, _ = data.train.inputs.shape[1:]
    sizes = {"img_size": size, "patch_size": max(2, size // 8), "depth": 2 if arguments.smoke else 6}
    vit = timm.create_model("vit_tiny_patch16_224", in_chans=channels, num_classes=data.num_classes, **sizes)
    # ARR as the paper has it in transformers: on the class token behind every block, with the weight 10
    held = {"held": "blocks.*", "weight": 10.0} if "arr" in arguments.neurons.split("+") else {}
    model = companion.rethink(vit.to(device), arguments.neurons, (channels, size, size), data.num_classes, **held)
    print(model.rethought)

    groups = companion.parameter_groups(model, 0.05, model.rethought.decay)
    optimiser = torch.optim.AdamW(groups, lr=1e-3)
    steps = epochs * -(-len(data.train) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, total_steps=steps)
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(data.train), device=device).split(128):
            images, target = data.train.inputs[batch], data.train.targets[batch]
            if not arguments.smoke:
                images = datasets.random_crop_and_mirror(images)
            loss = F.cross_entropy(model(images), target) + companion.extra_loss(model, target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch}: accuracy {training.evaluate(model, data.test).accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
