"""What other machines have not, and what is said or done there instead.

No Apple GPU is asked here. torch's device "meta" stands for one: it is no CPU, its values cannot be read, and the
mode below refuses it float64 as an Apple GPU does.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import companion
from companion import files, functional, operators, simulator
from companion.baselines import CentreLoss, ExtraLinear, Swish
from companion.simulator import build
from companion.study import bench

ROOT = Path(companion.__file__).parents[1]


class NoFloat64(TorchDispatchMode):
    """Refuses float64 outside the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.dtype == torch.float64 and leaf.device.type != "cpu":
                raise TypeError(f"{func}: this device has no float64")
        return result


def test_the_stand_in_refuses_float64() -> None:
    with NoFloat64(), pytest.raises(TypeError, match="no float64"):
        torch.zeros(3, device="meta").double()


MODULES: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: companion.APA(device="meta"), (2, 4, 5)),
    (lambda: companion.AGLU(device="meta"), (2, 4, 5)),
    (lambda: companion.AGLU(4, init="aglu", device="meta"), (2, 4, 5)),
    (lambda: companion.AGLU(init=(1.0, 2.0), device="meta"), (2, 4, 5)),
    (lambda: companion.LASiLU(), (2, 4, 5)),
    (lambda: companion.LAHardSiLU(), (2, 4, 5)),
    (lambda: companion.DACLinear(5, 3, device="meta"), (2, 5)),
    (lambda: companion.DACConv2d(4, 6, 3, padding=1, device="meta"), (2, 4, 5, 5)),
    (lambda: companion.MultiBias(4, 2, device="meta"), (2, 4, 5)),
    (lambda: companion.GDN(4, dim=1, device="meta"), (2, 4, 5)),
    (lambda: companion.ChannelAttention(16).to("meta"), (2, 16, 5, 5)),
    (lambda: companion.SpatialAttention().to("meta"), (2, 16, 5, 5)),
]


@pytest.mark.parametrize(("make", "shape"), MODULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_module_asks_a_gpu_for_no_float64(
    make: Callable[[], nn.Module], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    with NoFloat64():
        module = make()
        z = torch.zeros(shape, device="meta", dtype=dtype, requires_grad=True)
        if isinstance(module, (companion.ChannelAttention, companion.SpatialAttention)):
            module = module.to(dtype)
        y = module(z)
        (gradient,) = torch.autograd.grad(y.sum(), z, create_graph=True)
        assert gradient.dtype == dtype
        gradient.sum().backward()


def test_a_number_as_parameter_asks_for_no_float64_either() -> None:
    with NoFloat64():
        z = torch.zeros(2, 3, device="meta", requires_grad=True)
        functional.aglu(z, 1.0, 0.5).sum().backward()
        functional.apa(z, 1.0, 0.5).sum().backward()


WITH_PARAMETERS: list[Callable[..., nn.Module]] = [
    companion.AGLU,
    companion.APA,
    partial(companion.DACConv2d, 4, 6, 3),
    partial(companion.DACLinear, 5, 3),
    partial(companion.GDN, 4),
    partial(companion.MultiArgument, 2),
    partial(companion.MultiBias, 4, 2),
    partial(companion.Quadratic, 2),
    partial(companion.RAA, 4),
    partial(ExtraLinear, 4),
    Swish,
]


@pytest.mark.parametrize("make", WITH_PARAMETERS, ids=lambda make: getattr(make, "func", make).__name__)
def test_parameters_are_made_where_and_as_wide_as_was_asked_and_can_be_filled_there(
    make: Callable[..., nn.Module],
) -> None:
    torch.manual_seed(3)
    wanted = make(dtype=torch.float64).state_dict()
    empty = make(device="meta", dtype=torch.float64)
    assert {(each.device.type, each.dtype) for each in empty.parameters()} == {("meta", torch.float64)}
    torch.manual_seed(3)
    filled = empty.to_empty(device="cpu")
    filled.reset_parameters()
    torch.testing.assert_close(filled.state_dict(), wanted, rtol=0, atol=0)
    with pytest.raises(TypeError, match=r"dtype: got torch\.int64, allowed is a floating dtype"):
        make(dtype=torch.int64)


@pytest.mark.parametrize(
    "make",
    [
        partial(companion.ChannelAttention, 8, gate="apa", layer_norm=True),
        partial(companion.SpatialAttention, gate="apa"),
        partial(companion.SpatialChannelAttention, 8, gate="apa"),
    ],
)
def test_parameters_of_attention_are_made_where_and_as_wide_as_was_asked(make: Callable[..., nn.Module]) -> None:
    made = make(device="meta", dtype=torch.float64)
    assert {(each.device.type, each.dtype) for each in made.parameters()} == {("meta", torch.float64)}
    with pytest.raises(TypeError, match=r"dtype: got torch\.int64, allowed is a floating dtype"):
        make(dtype=torch.int64)


@pytest.mark.parametrize("make", [companion.ARR, CentreLoss])
def test_buffers_that_were_made_nowhere_can_be_filled(make: Callable[..., nn.Module]) -> None:
    with torch.device("meta"):
        empty = make(3, 4)
    filled = empty.to_empty(device="cpu")
    filled.reset_parameters()  # type: ignore[operator]
    torch.testing.assert_close(filled.state_dict(), make(3, 4).state_dict(), rtol=0, atol=0)


def test_a_seed_gives_the_same_parameters_on_every_device() -> None:
    """The draws come from the CPU's generator, whatever the device."""
    torch.manual_seed(7)
    first = companion.AGLU(3, init="aglu")
    torch.manual_seed(7)
    with torch.device("meta"):
        companion.AGLU(3, init="aglu")
    after = torch.rand(())
    torch.manual_seed(7)
    assert torch.equal(companion.AGLU(3, init="aglu").raw_lam, first.raw_lam)
    assert torch.equal(torch.rand(()), after)


@pytest.mark.parametrize("device", ["mps", "meta", "cpu"])
def test_autocast_is_asked_of_devices_that_know_it(device: str) -> None:
    from companion.operators import without_autocast

    with without_autocast(device):
        pass


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("darwin", "x86_64"), ("win32", "AMD64"), ("linux", "aarch64")]
)
def test_the_simulator_says_where_it_runs(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    build._toolchain.cache_clear()
    try:
        assert not simulator.available()
        assert simulator.why_not() == f"The simulator needs Linux on x86-64; this is {system} on {machine}."
    finally:
        build._toolchain.cache_clear()


def test_windows_has_a_temporary_folder_without_user_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "getuid")
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
    files.temporary_directory.cache_clear()
    try:
        assert files.temporary_directory() == tmp_path / "companion"
        assert (tmp_path / "companion").is_dir()
    finally:
        files.temporary_directory.cache_clear()


def test_measuring_on_another_system_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        bench.main(["apa"])
    assert "which Linux has; this is darwin" in capsys.readouterr().err


MODULES_TO_IMPORT = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "companion").rglob("*.py"))
    if path.name not in ("__main__.py", "__init__.py")
]


def test_every_module_can_be_imported_without_what_only_unix_has() -> None:
    code = (
        "import sys\n"
        "for name in ('resource', 'fcntl', 'pwd', 'grp', 'termios'): sys.modules[name] = None\n"
        f"import importlib\nfor name in {MODULES_TO_IMPORT!r}: importlib.import_module(name)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr


def test_no_file_is_read_in_the_encoding_of_the_system() -> None:
    code = (
        "import torch, warnings\n"
        "warnings.filterwarnings('error', category=EncodingWarning, module='companion')\n"
        "from companion.study import results\n"
        "from companion.cuda import build\n"
        "from companion.apa.kernel import KERNELS\n"
        "results.load(results.names()[0])\n"
        "assert build._included(KERNELS.source.read_text(encoding='utf-8'), KERNELS.source.parent)\n"
    )
    command = [sys.executable, "-X", "warn_default_encoding", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr


def test_the_page_on_running_says_what_the_code_demands() -> None:
    page = (ROOT / "book" / "appendix" / "running.md").read_text(encoding="utf-8")
    (compiler,) = re.findall(r"with g\+\+ (\d+) or newer", page)
    assert int(compiler) == build.OLDEST_COMPILER
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"PyTorch ([\d.]+) is the oldest that is tested", page) == [
        line.removeprefix("torch>=") for line in project["dependencies"] if line.startswith("torch")
    ]
    oldest = ".".join(map(str, operators.OLDEST_COMPILER))
    assert re.findall(r"Under `torch.compile` it is ([\d.]+):", page) == [oldest]
