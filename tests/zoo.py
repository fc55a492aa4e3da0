"""Somebody else's networks, with random weights, through all that is done to networks here: `make zoo`.

A tenth of them, drawn with a fixed seed, goes the same way in the tests, but for the export to ONNX, which takes too
long there. What comes out is in data/results/zoo.csv, which the page of the API shows.
"""

from __future__ import annotations

import csv
import pickle
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import timm
import torch
import torchvision
from torch import Tensor, fx, nn

from companion import AGLU, RAA, LASiLU, count, parameter_groups, replace_activations, restore_activations, to_dac
from companion.activations import KINDS, kind_of
from tests.runtime import in_onnx_runtime
from tests.strangers import STRANGERS

TABLE = Path(__file__).parents[1] / "data/results/zoo.csv"

TORCHVISION = """
    alexnet vgg11 vgg11_bn resnet18 resnet50 wide_resnet50_2 resnext50_32x4d densenet121 inception_v3 googlenet
    mobilenet_v2 mobilenet_v3_small mnasnet0_5 efficientnet_b0 efficientnet_v2_s regnet_y_400mf regnet_x_400mf
    shufflenet_v2_x0_5 squeezenet1_1 convnext_tiny vit_b_16 swin_t swin_v2_t lraspp_mobilenet_v3_large
    deeplabv3_mobilenet_v3_large fcn_resnet50 fasterrcnn_mobilenet_v3_large_fpn
"""
TIMM = """
    vit_tiny_patch16_224 deit_tiny_distilled_patch16_224 deit3_small_patch16_224 swin_tiny_patch4_window7_224
    convnext_atto efficientnet_lite0 mobilenetv3_small_050 mobilenetv4_conv_small regnety_002 ghostnet_050 nf_resnet26
    resnet26d resnetv2_50 repvgg_a0 rexnet_100 mixer_s32_224 eva02_tiny_patch14_224 levit_128s poolformer_s12
    gmlp_s16_224 resmlp_12_224 cspresnet50 dpn48b darknet53 hrnet_w18_small xception41 dm_nfnet_f0 coatnet_pico_rw_224
    cait_xxs24_224
"""
NAMES = (*TORCHVISION.split(), *TIMM.split(), *STRANGERS)

#: What is exported to ONNX as well, which takes a minute and more where there are many activations.
TO_ONNX = (
    *STRANGERS,
    *("alexnet", "vgg11_bn", "resnet18", "squeezenet1_1", "convnext_tiny", "swin_t"),
    *("vit_tiny_patch16_224", "convnext_atto", "mixer_s32_224", "resmlp_12_224"),
)

#: What neurons are activated by; the others are gates.
NEURONS = ("relu", "relu6", "leaky_relu", "elu", "silu", "hardswish", "gelu", "mish")
SIZES = (64, 96, 224, 256)
#: How the reports begin that say why the channels of an activation are not known.
UNTOLD = ("it is called with", "no layer before it says", "the example does not reach it")


def made(name: str) -> nn.Module:
    """A network in evaluation mode in which nothing is the identity or 0."""
    torch.manual_seed(0)
    if name in STRANGERS:
        model = STRANGERS[name][0]()
    elif name in TIMM.split():
        model = timm.create_model(name)
    else:
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        backbone = {"weights_backbone": None} if "rcnn" in name or "v3_large" in name or name == "fcn_resnet50" else {}
        model = torchvision.models.get_model(name, weights=None, **options, **backbone)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            nn.init.normal_(module.bias, std=0.1)
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, std=0.02)
    # of a detector what computes with numbers alone
    built: nn.Module = model.backbone if "rcnn" in name else model
    return built.eval()


def example(name: str, model: nn.Module) -> Tensor:
    """What a stranger's network takes; of the others the smallest pictures: two small ones, or a large one."""
    if name in STRANGERS:
        return STRANGERS[name][1]()
    for size in SIZES:
        x = torch.randn(1 if size > 100 else 2, 3, size, size)
        try:
            model(x)
        except (RuntimeError, AssertionError, ValueError):
            continue
        return x
    raise ValueError(f"{name} takes no picture of {SIZES} pixels")


def _tensor(out: object) -> Tensor:
    """Of what a network gives, all numbers."""
    return torch.cat([leaf.flatten().double() for leaf in torch.utils._pytree.tree_leaves(out)])


def _far(one: object, other: object) -> float:
    """The largest difference, for a largest number of 1."""
    expected = _tensor(other)
    return ((_tensor(one) - expected).abs().max() / expected.abs().max().clamp_min(1e-12)).item()


def _fails(work: Callable[[], object]) -> bool:
    """Whether something raises an error, whatever the error is."""
    try:
        work()
    except Exception:
        return True
    return False


class Walk:
    """One network, step by step; each step says what came out."""

    def __init__(self, name: str) -> None:
        self.name, self.model = name, made(name)
        with torch.no_grad():
            self.x = example(name, self.model)
            self.out = self.model(self.x)
        self.aglu = self._replaced(dict.fromkeys(NEURONS, AGLU))

    def _replaced(self, replacements: dict[str, Callable[..., nn.Module]]) -> nn.Module:
        with torch.no_grad():
            return replace_activations(self.model, replacements)

    def replace(self) -> str:
        """All activations of neurons become AGLU, and all that stay are named; back again, the function is the same."""
        new = self.aglu
        again = self._replaced({kind: KINDS[kind] for kind in NEURONS if kind != "gelu"} | {"gelu": nn.GELU})
        kinds = {type(module).__name__ for module in self.model.modules() if kind_of(module) in NEURONS}
        if kinds <= {kind.__name__ for kind in KINDS.values()} and not _settings(self.model):
            assert _far(again(self.x), self.out) < 1e-5, "the same activations give something else"
        assert _far(new(self.x), self.out) > 0 or not new.replaced.new, "nothing changed"
        back = restore_activations(replace_activations(self.model, dict.fromkeys(NEURONS, AGLU)))
        assert _far(back(self.x), self.out) == 0, "not restored"
        missed = sum("called as a function" in why for why in new.replaced.left.values())
        return f"{len(new.replaced.new)}" + (f", {missed} missed" if missed else "")

    def raa(self) -> str:
        """RAA is told how many channels there are and where, or the report says why it cannot be."""
        try:
            new = replace_activations(self.model, dict.fromkeys(NEURONS, RAA), self.x)
        except ValueError as error:
            return "nothing" if "to replace" in str(error) else f"FAILED {error}"
        assert _tensor(new(self.x)).isfinite().all()
        left = sum(why.startswith(UNTOLD) for why in new.replaced.left.values())
        return f"{len(new.replaced.new)}" + (f", {left} left" if left else "")

    def to_dac(self) -> str:
        """What the report says of the function is so."""
        try:
            new = to_dac(self.model, self.x, keep_function=True)
        except ValueError as error:
            return "nothing" if "is followed by" in str(error) else "not traced"
        assert not new.converted.changed or all("in this mode" in why for why in new.converted.changed.values())
        assert _far(new(self.x), self.out) < 1e-4, f"the function changes by {_far(new(self.x), self.out):.1e}"
        bare = to_dac(self.model, self.x)
        changed = any("a sum" in why for why in bare.converted.changed.values())
        assert changed or _far(bare(self.x), self.out) < 1e-4, "changed without a word"
        assert _far(pickle.loads(pickle.dumps(new))(self.x), new(self.x)) == 0, "another after a pickle"
        return f"{len(new.converted.layers)}" + (", sums" if changed else "")

    def count(self) -> str:
        """FLOPs of one example."""
        counted = count(self.model, self.x[:1])
        assert counted.parameters == sum(p.numel() for p in self.model.parameters())
        flops = f"{counted.flops / 1e6:.0f} M" if counted.flops > 2e6 else f"{counted.flops / 1e3:.0f} k"
        return flops + (f", {len(counted.unknown)} unknown" if counted.unknown else "")

    def groups(self) -> str:
        """Every parameter is in one group."""
        groups = parameter_groups(self.aglu, 0.1)
        found = sorted(id(p) for group in groups for p in group["params"])
        assert found == sorted(id(p) for p in self.aglu.parameters() if p.requires_grad)
        return "yes"

    def state(self) -> str:
        """A checkpoint of the plain network goes into one with LA-SiLU, and one with AGLU into itself."""
        self.aglu.load_state_dict(self.aglu.state_dict())
        try:
            plain = self._replaced(dict.fromkeys(NEURONS, LASiLU))
        except ValueError:
            return "nothing replaced"
        plain.load_state_dict(self.model.state_dict())
        return "yes"

    def pickled(self) -> str:
        """A copy by pickle computes the same where there is one of the old network."""
        if _fails(lambda: pickle.dumps(self.model)):
            return "nor before"
        assert _far(pickle.loads(pickle.dumps(self.aglu))(self.x), self.aglu(self.x)) == 0
        return "yes"

    def traced(self) -> str:
        """torch.fx traces the new network where it traces the old."""
        if _fails(lambda: fx.symbolic_trace(self.model)):
            return "nor before"
        assert _far(fx.symbolic_trace(self.aglu)(self.x), self.aglu(self.x)) < 1e-5
        return "yes"

    def exported(self) -> str:
        """torch.export takes the new network where it takes the old."""
        if _fails(lambda: torch.export.export(self.model, (self.x,))):
            return "nor before"
        assert _far(torch.export.export(self.aglu, (self.x,)).module()(self.x), self.aglu(self.x)) < 1e-5
        return "yes"

    def onnx(self) -> str:
        """ONNX Runtime computes the same with the new network where torch can write the old as ONNX."""
        if self.name not in TO_ONNX:
            return "–"
        try:
            out = in_onnx_runtime(self.aglu, self.x)
        except Exception:
            if _fails(lambda: in_onnx_runtime(self.model, self.x)):
                return "nor before"
            raise
        assert _far(out, self.aglu(self.x)) < 1e-4
        return "yes"


STEPS = ("replace", "raa", "to_dac", "count", "groups", "state", "pickled", "traced", "exported", "onnx")


def _settings(model: nn.Module) -> bool:
    """Whether an activation has other settings than torch's own."""
    return any(
        getattr(module, "approximate", "none") != "none" or getattr(module, "negative_slope", 0.01) != 0.01
        for module in model.modules()
    )


@torch.no_grad()
def walked(name: str, steps: Sequence[str] = STEPS) -> dict[str, str]:
    """What came out of some steps; of a failed one, why."""
    walk, row = Walk(name), {"network": name}
    for step in steps:
        try:
            row[step] = getattr(walk, step)()
        except Exception as error:
            row[step] = f"FAILED {type(error).__name__}: {error}"
            if "-v" in sys.argv:
                traceback.print_exc()
    return row


def drawn() -> list[str]:
    """The tenth that runs in the tests."""
    return random.Random(10).sample(NAMES, len(NAMES) // 10)


def table() -> dict[str, dict[str, str]]:
    """What came out, by network."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["network"]: row for row in csv.DictReader(file)}


def main(names: Sequence[str]) -> int:
    """Walk with some networks or all, and write what came out into the table, row by row."""
    rows, failed = table() if TABLE.exists() else {}, 0
    for name in names or NAMES:
        start = time.perf_counter()
        rows[name] = walked(name)
        failed += any(value.startswith("FAILED") for value in rows[name].values())
        print(f"{time.perf_counter() - start:6.1f} s", *rows[name].values(), sep=" | ", flush=True)
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            written = csv.DictWriter(file, ("network", *STEPS), lineterminator="\n")
            written.writeheader()
            written.writerows(rows[name] for name in NAMES if name in rows)
    print(f"{failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main([name for name in sys.argv[1:] if name != "-v"]))
