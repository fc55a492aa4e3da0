"""Train a ResNet whose every channel has an AGLU of its own, in bfloat16, with weight decay on the kernels alone.

python examples/resnet_with_aglu.py            CIFAR-10, which is downloaded once
python examples/resnet_with_aglu.py --smoke    scikit-learn's digits, in seconds
"""

import argparse

import timm
import torch
from torch import nn
from torch.nn import functional as F

import companion
from companion.study import datasets, training


def main() -> None:
    """Print the accuracy on the test images after every epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    epochs = 3 if arguments.smoke else arguments.epochs
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)

    data = datasets.load("digits" if arguments.smoke else "cifar10", validation=0).to(device)
    channels, size, _ = data.train.inputs.shape[1:]
    widths = {"channels": (16, 32, 64, 128)} if arguments.smoke else {}
    resnet = timm.create_model("resnet18", in_chans=channels, num_classes=data.num_classes, **widths)
    # small images: the first layer keeps every pixel
    resnet.conv1, resnet.maxpool = nn.Conv2d(channels, resnet.bn1.num_features, 3, padding=1, bias=False), nn.Identity()
    aglu = {"relu": lambda channels, dim: companion.AGLU(channels, dim)}
    model = companion.replace_activations(resnet.to(device), aglu, example=(channels, size, size))
    print(model.replaced)

    optimiser = torch.optim.SGD(companion.parameter_groups(model, 5e-4, "kernels"), lr=0.1, momentum=0.9, nesterov=True)
    steps = epochs * -(-len(data.train) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=steps)
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(data.train), device=device).split(128):
            images, target = data.train.inputs[batch], data.train.targets[batch]
            if not arguments.smoke:
                images = datasets.random_crop_and_mirror(images)
            with torch.autocast(device, torch.bfloat16):
                loss = F.cross_entropy(model(images), target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch}: accuracy {training.evaluate(model, data.test).accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
