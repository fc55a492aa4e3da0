"""One call launches a kernel on a GPU or in the simulator; what is missing is named."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import companion
from companion import simulator
from companion.cuda import build, launch
from companion.simulator import build as simulator_build

SOURCE = Path(__file__).with_name("scale.cu")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> launch.Kernels:
    """The kernels of scale.cu, never loaded before."""
    monkeypatch.setattr(launch, "_kernels", list(launch._kernels))
    return launch.Kernels(SOURCE, ["scale"])


def arguments(x: torch.Tensor) -> tuple[list[object], torch.Tensor]:
    y = torch.zeros_like(x)
    return [x, y, np.int64(x.numel())], y


@pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
def test_a_kernel_runs_in_the_simulator(kernels: launch.Kernels) -> None:
    x = torch.arange(70.0)
    given, y = arguments(x)
    kernels.launch("scale", (3,), (32,), given, x.device, simulated=True)
    assert torch.equal(y, 3 * x)


# --- sources given as text ---

TEXT = """
__device__ float twice(float x) { return 2 * x; }
// extern, but not a kernel
extern "C" __device__ float thrice(float x) { return 3 * x; }
extern "C" __global__ void __launch_bounds__(256) double_it(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = twice(x[threadIdx.x]);
}
extern "C"
__global__ void triple_it(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = thrice(x[threadIdx.x]);
}
"""


@pytest.fixture
def text_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no kernels known."""
    monkeypatch.setattr(launch, "_kernels", list(launch._kernels))
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("text_cache")
def test_every_kernel_of_a_text_is_found_and_nothing_else() -> None:
    assert launch.Kernels.from_text(TEXT).names == ("double_it", "triple_it")


def test_a_text_is_kept_once_under_the_name_that_messages_use(text_cache: Path) -> None:
    first, again = (launch.Kernels.from_text(TEXT, "mine.cu").source for _ in range(2))
    assert first == again
    assert first.name == "mine.cu"
    assert text_cache in first.parents
    assert first.read_text() == TEXT
    assert launch.Kernels.from_text(TEXT + "//", "mine.cu").source != first


@pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
@pytest.mark.parametrize(("name", "factor"), [("double_it", 2), ("triple_it", 3)])
@pytest.mark.usefixtures("text_cache")
def test_the_kernels_of_a_text_run(name: str, factor: int) -> None:
    x = torch.arange(40.0)
    y = torch.zeros_like(x)
    kernels = launch.Kernels.from_text(TEXT)
    kernels.launch(name, (1,), (64,), [x, y, np.int32(40)], x.device, simulated=True)
    assert torch.equal(y, factor * x)


@pytest.mark.usefixtures("text_cache")
def test_a_text_without_a_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match='source without a kernel, that is a function extern "C" __global__ void'):
        launch.Kernels.from_text("__global__ void mangled(float* x) {}")


@pytest.mark.parametrize("name", ["scale", "a/scale.cu", "../scale.cu", ".cu", "scale.py"])
@pytest.mark.usefixtures("text_cache")
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"name: got .* allowed is the name of a \.cu file"):
        launch.Kernels.from_text(TEXT, name)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    simulator_build._toolchain.cache_clear()
    monkeypatch.setenv("PATH", "")
    yield
    monkeypatch.undo()
    simulator_build._toolchain.cache_clear()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_simulator_says_so(kernels: launch.Kernels) -> None:
    x = torch.arange(4.0)
    with pytest.raises(simulator.SimulatorError, match=r"needs g\+\+, which is not on the PATH"):
        kernels.launch("scale", (1,), (32,), arguments(x)[0], x.device, simulated=True)


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    launch.cupy.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match=r"needs CuPy; install one of cupy-cuda12x and cupy-cuda13x"):
        launch.cupy()
    monkeypatch.undo()
    launch.cupy.cache_clear()


def test_importing_and_declaring_kernels_needs_neither_a_compiler_nor_cupy() -> None:
    code = (
        "import sys; sys.modules['cupy'] = sys.modules['cuda'] = None\n"
        "import companion, torch\nfrom companion.functional import aglu\n"
        "from companion.apa.kernel import KERNELS\n"
        "companion.backend('kernel'), companion.backend('auto')\n"
        "print(aglu(torch.zeros(2), 1.0, 1.0).tolist())"
    )
    environment = {"PATH": "", "CUDA_VISIBLE_DEVICES": "", "HOME": "/nonexistent"}
    root = Path(launch.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=root, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[0.0, 0.0]\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_warming_up_without_a_gpu_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        companion.warmup()


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
class TestOnAGpu:
    def test_a_kernel_runs(self, kernels: launch.Kernels) -> None:
        x = torch.arange(70.0, device="cuda")
        given, y = arguments(x)
        kernels.launch("scale", (3,), (32,), given, x.device)
        assert torch.equal(y, 3 * x)

    def test_it_runs_on_the_current_stream_of_each_thread(self, kernels: launch.Kernels) -> None:
        x = torch.ones(1 << 20, device="cuda")
        results = []

        def on_a_stream() -> None:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000_000)  # were the kernel on another stream, it would come first
                z = x + 1
                given, y = arguments(z)
                kernels.launch("scale", (1 << 15,), (32,), given, z.device)
                results.append(y.sum())
            stream.synchronize()

        threads = [threading.Thread(target=on_a_stream) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [r.item() for r in results] == [6 * x.numel()] * 2

    def test_a_cold_kernel_is_refused_during_a_capture(self, kernels: launch.Kernels) -> None:
        x = torch.arange(70.0, device="cuda")
        given, _ = arguments(x)
        graph = torch.cuda.CUDAGraph()
        with (
            pytest.raises(RuntimeError, match=r"scale\.cu is not loaded yet.*companion\.warmup\(\)"),
            torch.cuda.graph(graph),
        ):
            kernels.launch("scale", (3,), (32,), given, x.device)

    def test_a_warm_kernel_is_captured_and_replayed(self, kernels: launch.Kernels) -> None:
        x = torch.arange(70.0, device="cuda")
        given, y = arguments(x)
        kernels.launch("scale", (3,), (32,), given, x.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernels.launch("scale", (3,), (32,), given, x.device)
        x.fill_(5)
        graph.replay()
        assert torch.equal(y, torch.full_like(y, 15))

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
    def test_it_runs_on_the_device_of_its_tensors(self, kernels: launch.Kernels) -> None:
        for index in (1, 0):
            x = torch.arange(70.0, device=f"cuda:{index}")
            given, y = arguments(x)
            kernels.launch("scale", (3,), (32,), given, x.device)
            assert torch.equal(y, 3 * x)
        assert torch.cuda.current_device() == 0

    def test_a_launch_takes_the_host_less_than_100_microseconds(self, kernels: launch.Kernels) -> None:
        x = torch.arange(70.0, device="cuda")
        given, _ = arguments(x)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(100):
                kernels.launch("scale", (3,), (32,), given, x.device)
            times.append((time.perf_counter() - start) / 100)
            torch.cuda.synchronize()
        assert min(times) < 100e-6


def test_the_folder_of_the_headers_is_the_projects() -> None:
    assert (build.INCLUDE / "common.cuh").is_file()
