"""``python -m companion``: what a network costs, what this machine can do, benchmarks and experiments.

doctor
    What is installed, what works, what is proved, and what mends the rest.
count MODEL
    Parameters and FLOPs of a network of torchvision or timm, or of your own, as it is or after what is done to it.
bench NAME ...
    Time and memory of an operator beside what people would otherwise use.
experiments ...
    The papers' experiments: list, run, table, check.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence

import torch
from torch import nn

import companion


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    parser = argparse.ArgumentParser(
        "python -m companion", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"companion {companion.__version__}")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="--help after a command says which")
    if not given:
        parser.print_help()
        return 0
    options = parser.parse_args(given)
    return COMMANDS[options.command](options.arguments)


def _doctor(arguments: Sequence[str]) -> int:
    from companion import doctor

    argparse.ArgumentParser("python -m companion doctor", description=doctor.__doc__).parse_args(arguments)
    print(doctor.report())
    return 0


def _bench(arguments: Sequence[str]) -> int:
    from companion.study import bench

    return bench.main(arguments)


def _experiments(arguments: Sequence[str]) -> int:
    from companion.study.experiments.__main__ import main as experiments

    return experiments(arguments)


# --- count -------------------------------------------------------------------------------------------------------


def _count(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m companion count", description="Parameters and FLOPs of a network, with random weights."
    )
    parser.add_argument("model", help="a name of torchvision or timm, or package.module:what_makes_it")
    parser.add_argument("--input", default="3,224,224", help="shape of one example, without the batch (3,224,224)")
    parser.add_argument("--replace", action="append", default=[], metavar="OLD=NEW", help="such as relu=aglu")
    parser.add_argument("--dac", action="store_true", help="convert it by to_dac")
    parser.add_argument("--by-operator", action="store_true", help="FLOPs by operator instead of by layer")
    options = parser.parse_args(arguments)
    try:
        shape = tuple(int(size) for size in options.input.split(","))
        model = _model(options.model)
        if options.replace:
            if wrong := [pair for pair in options.replace if pair.count("=") != 1]:
                parser.error(f"--replace: got {wrong[0]!r}, allowed is OLD=NEW, such as relu=aglu")
            pairs = dict(pair.split("=") for pair in options.replace)
            model = companion.replace_activations(model, pairs, shape)
            print(model.replaced, end="\n\n")
        if options.dac:
            model = companion.to_dac(model, torch.zeros(1, *shape))
            print(model.converted, end="\n\n")
        counted = companion.count(model, shape)
    except ValueError as error:
        parser.error(str(error))
    if options.by_operator:
        width = max((len(name) for name in counted.by_operator()), default=0)
        for name, flops in counted.by_operator().items():
            print(f"{name:<{width}}  {flops:>18,}")
    else:
        print(counted)
    return 0


def _model(name: str) -> nn.Module:
    """A network by its name."""
    if ":" in name:
        module, _, function = name.partition(":")
        try:
            make = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            allowed = "package.module:what_makes_it, which can be imported from here"
            raise ValueError(f"model: got {name!r} ({error}), allowed is {allowed}") from error
        made: nn.Module = make()
        return made
    if importlib.util.find_spec("torchvision"):
        from torchvision import models

        if name in models.list_models():
            # by default, parts of a network for segmentation or detection would be downloaded
            options = inspect.signature(models.get_model_builder(name)).parameters
            found: nn.Module = models.get_model(name, **{key: None for key in ("weights_backbone",) if key in options})
            return found
    if importlib.util.find_spec("timm"):
        import timm

        if timm.is_model(name):
            created: nn.Module = timm.create_model(name)
            return created
    raise ValueError(f"model: got {name!r}, allowed is the name of a network of torchvision or timm (if installed)")


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "doctor": _doctor,
    "count": _count,
    "bench": _bench,
    "experiments": _experiments,
}

if __name__ == "__main__":
    sys.exit(main())
