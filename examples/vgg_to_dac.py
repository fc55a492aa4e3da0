"""Turn a trained VGG into a DAC and train on; beside it, the VGG trains on for as long.

python examples/vgg_to_dac.py            CIFAR-10, which is downloaded once
python examples/vgg_to_dac.py --smoke    scikit-learn's digits, in seconds
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models.vgg import make_layers

import companion
from companion.study import datasets, training


def train(model: nn.Module, data: datasets.Splits, epochs: int, rate: float, *, augmented: bool) -> float:
    """Train with AdamW and a rate that falls to zero; return the accuracy on the test images."""
    optimiser = torch.optim.AdamW(companion.parameter_groups(model, 0.05, "kernels"), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(data.train)).split(128):
            images, target = data.train.inputs[batch], data.train.targets[batch]
            loss = F.cross_entropy(model(datasets.random_crop_and_mirror(images) if augmented else images), target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return training.evaluate(model, data.test).accuracy


def main() -> None:
    """Train, convert, train on; print what each network gets right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    epochs, augmented = (4, False) if arguments.smoke else (arguments.epochs, True)
    torch.manual_seed(0)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = datasets.load("digits" if arguments.smoke else "cifar10", validation=0).to(device)
    width = 16 if arguments.smoke else 64
    layers = make_layers([width, "M", 2 * width, "M", 4 * width, 4 * width, "M"], batch_norm=True)
    layers[0] = nn.Conv2d(data.train.inputs.shape[1], width, 3, padding=1)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, data.num_classes)
    vgg = nn.Sequential(layers, *head).to(device)
    print(f"VGG: accuracy {train(vgg, data, epochs, 2e-3, augmented=augmented):.3f}", flush=True)
    dac = companion.to_dac(vgg)
    print(dac.converted)
    for name, model in (("DAC", dac), ("VGG", vgg)):
        before = training.evaluate(model, data.test).accuracy
        after = train(model, data, epochs, 5e-4, augmented=augmented)
        print(f"{name}, trained on: accuracy {before:.3f} → {after:.3f}", flush=True)


if __name__ == "__main__":
    main()
