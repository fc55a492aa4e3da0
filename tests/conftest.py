"""Who computes: the operator's tests run through every backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import companion
from companion import simulator
from companion.cuda.op import COMPILES

#: For @pytest.mark.parametrize("backend", BACKENDS, indirect=True).
BACKENDS = ["torch", "simulator", pytest.param("kernel", marks=pytest.mark.gpu)]


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
