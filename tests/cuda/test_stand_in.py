"""The way to a GPU, from the operator to CuPy, run where there is no GPU: see stand_in.py."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import companion
from companion import simulator
from companion.cuda import launch
from companion.operators import operators
from companion.proofs import verdicts
from companion.proofs.verdicts import Verdict
from tests.cases import of_rooms
from tests.conftest import needs_cubins
from tests.cuda.stand_in import NewStream, OldStream, StandIn

pytestmark = [needs_cubins, pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))]

SCALE = Path(__file__).with_name("scale.cu")


@pytest.fixture(params=[False, True], ids=["old torch", "new torch"])
def gpu_of_paper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """CuPy and two GPUs, with a torch whose streams speak CUDA's protocol and with one whose streams do not."""
    return StandIn(monkeypatch, new_torch=request.param)


#: An operator with its operands.
CASES: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = of_rooms("LAUNCHED")


def with_gradients(function: Callable[..., Tensor], operands: list[Tensor], backend: str) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in operands]
    with companion.backend(backend):
        f = function(*leaves)
        return [f.detach(), *torch.autograd.grad(f.sum(), leaves)]


@pytest.mark.parametrize("case", CASES)
def test_an_operator_gives_the_same_bits_through_cupy(case: str, gpu_of_paper: StandIn) -> None:
    gpu_of_paper.handle = 1000
    found = with_gradients(*CASES[case], "kernel")
    launched = gpu_of_paper.launched
    assert any("forward" in launch.name for launch in launched)
    assert any("forward" not in launch.name for launch in launched)
    assert {launch.stream for launch in launched} == {1000}
    assert {launch.device for launch in launched} == {0}
    for one, other in zip(found, with_gradients(*CASES[case], "simulator"), strict=True):
        assert torch.equal(one, other)


def test_every_operator_is_tried() -> None:
    assert {case.partition(",")[0] for case in CASES} == {
        operator.name for operator in operators() if operator.name != "toy"
    }


# --- loading, devices, streams, captures ---


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> launch.Kernels:
    """The kernels of scale.cu, never loaded before, and not the package's."""
    monkeypatch.setattr(launch, "_kernels", list(launch.all_kernels()))
    return launch.Kernels(SCALE, ["scale"])


def tripled(kernels: launch.Kernels, device: str, count: int = 70) -> Tensor:
    x = torch.arange(float(count))
    y = torch.zeros_like(x)
    kernels.launch("scale", (3,), (32,), [x, y, np.int64(count)], torch.device(device))
    assert torch.equal(y, 3 * x)
    return y


def test_a_source_is_loaded_once_on_each_device_and_runs_there(scale: launch.Kernels, gpu_of_paper: StandIn) -> None:
    for device in ("cuda", "cuda:1", "cuda:0", "cuda:1"):
        tripled(scale, device)
    assert gpu_of_paper.loaded == [("scale.cu", 0), ("scale.cu", 1)]
    # the current stream of each device: of the second its handle is 16 higher
    assert [(at.device, at.stream) for at in gpu_of_paper.launched] == [(0, 0), (1, 16), (0, 0), (1, 16)]
    assert gpu_of_paper.device == 0


def test_the_stream_that_is_current_at_the_launch_is_taken(scale: launch.Kernels, gpu_of_paper: StandIn) -> None:
    for gpu_of_paper.handle in (0, 94, 7):
        tripled(scale, "cuda")
    assert [at.stream for at in gpu_of_paper.launched] == [0, 94, 7]


def test_a_capture_meets_no_loading(scale: launch.Kernels, gpu_of_paper: StandIn) -> None:
    gpu_of_paper.capturing = True
    with pytest.raises(RuntimeError, match=r"scale\.cu is not loaded yet.*companion\.warmup\(\)"):
        tripled(scale, "cuda")
    gpu_of_paper.capturing = False
    tripled(scale, "cuda")
    gpu_of_paper.capturing = True
    tripled(scale, "cuda")


def test_warming_up_loads_every_source_of_the_operators_alone(
    gpu_of_paper: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "_known", {})
    monkeypatch.setattr(verdicts, "_verdict", lambda *_: Verdict(True, ""))
    monkeypatch.setattr(launch, "_kernels", list(launch.all_kernels()))
    launch.Kernels.from_text('extern "C" __global__ void mine(float* x) { does not compile }')
    companion.warmup()
    sources = [kernels.source.name for operator in operators() for kernels in operator.kernels]
    assert gpu_of_paper.loaded == [(source, 0) for source in dict.fromkeys(sources)]


def test_more_blocks_than_a_gpu_takes_are_refused(scale: launch.Kernels, gpu_of_paper: StandIn) -> None:
    for grid in ((2**31,), (2**32 + 3,), (1, 65536), (1, 1, 65536)):
        with pytest.raises(ValueError, match=r"scale: got tensors for \(.*\) blocks, allowed are \(2147483647"):
            scale.launch("scale", grid, (32,), [None, None, np.int64(0)], torch.device("cuda"))
    assert gpu_of_paper.launched == []


#: By what is wrong, the arguments that change, the error, and its words: on a GPU and in the simulator.
REFUSED: dict[str, tuple[dict[int, Any], type[Exception], str]] = {
    "a number of Python's": ({2: 4}, TypeError, r"args\[2\]: got int, allowed is .*NumPy scalar such as numpy.int32"),
    "a tensor elsewhere": (
        {0: torch.zeros(4, device="meta")},
        ValueError,
        r"args\[0\]: got a tensor on meta, allowed is",
    ),
    "a tensor with gaps": (
        {1: torch.zeros(8)[::2]},
        ValueError,
        r"args\[1\]: got strides \(2,\), allowed is a tensor wi",
    ),
    "the negative bit": (
        {0: torch._neg_view(torch.ones(4))},
        ValueError,
        r"args\[0\]: got .* negative bit, allowed is",
    ),
}


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("case", REFUSED)
def test_what_a_kernel_would_misread_is_refused(
    case: str, simulated: bool, scale: launch.Kernels, gpu_of_paper: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor.device.type == "cpu"))
    changes, error, words = REFUSED[case]
    given = [changes.get(place, x) for place, x in enumerate([torch.ones(4), torch.ones(4), np.int64(4)])]
    with pytest.raises(error, match=words):
        scale.launch("scale", (1,), (32,), given, torch.device("cuda"), simulated)
    assert gpu_of_paper.launched == []


# --- CuPy itself ---


@pytest.mark.parametrize("stream", [OldStream(94), NewStream(94), OldStream(0)])
def test_cupy_itself_takes_the_streams_of_every_torch_without_a_warning(stream: Any) -> None:
    pytest.importorskip("cupy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch._stream(stream).ptr == stream.cuda_stream


def test_cupy_itself_has_what_the_stand_in_has() -> None:
    cupy = pytest.importorskip("cupy")
    assert "path" in cupy.RawModule.__init__.__doc__ or "path" in cupy.RawModule.__doc__
    assert callable(cupy.RawModule.get_function)
    assert "shared_mem" in cupy.RawKernel.__call__.__doc__
    assert inspect.ismethod(cupy.cuda.Stream.from_external)
    with pytest.raises((AttributeError, TypeError), match="does not implement the CUDA stream protocol"):
        cupy.cuda.Stream.from_external(OldStream(94))


# --- the stand-in refuses what CuPy refuses ---


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch)


@pytest.fixture
def function(stand_in: StandIn, scale: launch.Kernels) -> Callable[..., None]:
    return partial(scale.load(0)["scale"], stream=launch._stream(OldStream(0)))  # type: ignore[arg-type]


def arguments() -> list[Any]:
    x = torch.arange(32.0)
    return [x.data_ptr(), x.data_ptr(), np.int64(0)]


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a grid that is a list": ({"grid": [1]}, TypeError, "'grid' has incorrect type"),
    "a block of a float": ({"block": (32.0,)}, TypeError, "an integer is required"),
    "a tensor": ({"args": [torch.zeros(1), 0, np.int64(0)]}, TypeError, "Unsupported type <class 'torch.Tensor'>"),
    "a number too short": ({"args": [0, 0, np.int32(0)]}, AssertionError, "argument 2 has 4 bytes, the parameter 8"),
    "a number too few": ({"args": [0, 0]}, AssertionError, "gets 2 arguments and has 3 parameters"),
    "too many threads": ({"block": (32, 64)}, AssertionError, "at most 1024"),
    "too many blocks": ({"grid": (2**31,)}, AssertionError, "cut to 32 bits"),
    "shared memory": ({"shared_mem": 48 * 1024 + 1}, RuntimeError, "CUDA_ERROR_INVALID_VALUE"),
    "no stream": ({"stream": None}, AssertionError, "beside torch's"),
    "a word that CuPy has not": ({"smem": 1}, TypeError, "smem"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_launch_that_cupy_or_the_driver_would_refuse_or_misread(case: str, function: Callable[..., None]) -> None:
    changes, error, words = WRONG[case]
    with pytest.raises(error, match=words):
        function(**({"grid": (1,), "block": (32,), "args": arguments()} | changes))


def test_names_and_files_that_are_not_there(stand_in: StandIn, scale: launch.Kernels, tmp_path: Path) -> None:
    scale.load(0)
    (path,) = stand_in._sources
    (tmp_path / "scale.cubin").write_text("no cubin")
    with pytest.raises(RuntimeError, match="INVALID_IMAGE"):
        stand_in.RawModule(path=str(tmp_path / "scale.cubin"))
    with pytest.raises(TypeError, match="expected str"):
        stand_in.RawModule(path=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="NOT_FOUND"):
        stand_in.RawModule(path=path).get_function("skale")
    with pytest.raises(AttributeError):
        stand_in.RawModule(path=path).get_function("scale").max_threads = 1  # type: ignore[attr-defined]
