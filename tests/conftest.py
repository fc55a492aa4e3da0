"""Who computes: the operator's tests run through every backend. A browser, for whatever is shown in one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import companion
from companion import simulator
from companion.cuda import build
from companion.cuda.launch import Kernels
from companion.operators import COMPILES
from tests.study.moving import Figure

#: Programs of the lanes, for environments in which there is no pytest.
collect_ignore = ["bare.py", "colab.py", "lanes.py"]
#: Tests that have a process to themselves: `test_second_device.py` starts it.
collect_ignore += ["second_device"]

#: For @pytest.mark.parametrize("backend", BACKENDS, indirect=True).
BACKENDS = ["torch", "simulator", pytest.param("kernel", marks=pytest.mark.gpu)]


CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")

# Without these Chromium asks its maker's servers for updates and variations, or needs a privileged sandbox.
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _cubins_can_be_read() -> bool:
    from tests.cuda.machine_code import find_tool

    try:
        build.compiler_version()
    except build.CompileError:
        return False
    return find_tool("cuobjdump") is not None


needs_cubins = pytest.mark.skipif(not _cubins_can_be_read(), reason="needs NVRTC and cuobjdump")


@pytest.fixture(scope="session", autouse=True)
def launches_fit_their_cubins() -> Iterator[None]:
    """Every launch of the package's kernels is compared with the parameters in the cubin, in all tests."""
    if not _cubins_can_be_read():
        yield
        return
    from tests.cuda.parameters import checked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernels, "launch", checked(Kernels.launch))
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium; without one the test is skipped, and says so."""
    executable = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if executable is None:
        pytest.skip(f"no Chromium here (looked for {', '.join(CHROMIUMS)}): no page was tried in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def figure(chromium: Any) -> Iterator[Figure]:
    """A page of the browser that shows a figure."""
    shown = Figure(chromium)
    yield shown
    shown.page.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what a processor without vector extensions is not asked: the simulator, and what compilers make."""
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get("backend") == "simulator":
            item.add_marker("simulator")
        if "fresh_compiler" in getattr(item, "fixturenames", ()):
            item.add_marker("compiler")
            if not COMPILES:
                item.add_marker(pytest.mark.skip(reason=f"the compiler of torch {torch.__version__} is too old"))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each backend in turn, chosen for the duration of the test."""
    name: str = request.param
    if name == "simulator" and simulator.why_not() is not None:
        pytest.skip(str(simulator.why_not()))
    if name == "kernel" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    with companion.backend(name):
        yield name


@pytest.fixture
def device(backend: str) -> str:
    """Where the backend's tensors lie."""
    return "cuda" if backend == "kernel" else "cpu"


@pytest.fixture(autouse=True)
def seed() -> None:
    """Random inputs are the same at each run."""
    torch.manual_seed(0)


@pytest.fixture
def gpu() -> None:
    """Skips where there is none."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """torch.compile as in a new process, its counters at zero."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def traced(fresh_compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile traces a graph and runs it operator by operator: seconds, where generated code takes minutes."""
    compiler = torch.compile

    def trace(model: torch.nn.Module, *, fullgraph: bool, dynamic: bool, options: dict[str, int]) -> object:
        return compiler(model, fullgraph=fullgraph, dynamic=dynamic, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", trace)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The results of the smoke presets of the experiments that a file of tests names in KEYS."""
    from companion.study.experiments import get, run

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPANION_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("CI", "1")
        return {name: json.loads(run(get(name), "smoke").read_text()) for name in request.module.KEYS}
