"""backend() chooses who computes, and says who would; the checks that operators share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

import companion
from companion import functional, operators
from companion.apa.kernel import OPERATOR
from companion.functional import aglu
from companion.operators import checks, choice
from tests.cases import of_rooms, together

T = TypeVar("T")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    assert choice._of_context.get() is None
    companion.backend("auto")
    yield
    companion.backend("auto")


def in_another_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.mark.parametrize("name", ["torch", "kernel", "simulator"])
def test_a_chosen_backend_stays_until_another_is_chosen(name: str) -> None:
    assert companion.backend(name) == name
    assert companion.backend() == name


def test_a_with_statement_restores_the_former_choice() -> None:
    companion.backend("torch")
    with companion.backend("simulator") as chosen:
        assert chosen == companion.backend() == "simulator"
        with companion.backend("kernel"):
            assert companion.backend() == "kernel"
        assert companion.backend() == "simulator"
    assert companion.backend() == "torch"


def test_it_is_restored_after_an_exception_too() -> None:
    with pytest.raises(ZeroDivisionError), companion.backend("simulator"):
        1 / 0  # noqa: B018
    assert companion.backend() != "simulator"


def test_a_plain_choice_of_the_main_thread_holds_for_all_threads() -> None:
    with ThreadPoolExecutor(1) as pool:
        for name in ("torch", "simulator"):
            companion.backend(name)
            assert pool.submit(companion.backend).result() == name


def test_a_with_statement_holds_for_its_own_thread_alone() -> None:
    companion.backend("torch")
    with companion.backend("simulator"):
        assert in_another_thread(companion.backend) == "torch"
        companion.backend("kernel")
        assert companion.backend() == "kernel"
        assert in_another_thread(companion.backend) == "torch"
    assert companion.backend() == "torch"


def test_the_choice_of_another_thread_is_its_own() -> None:
    companion.backend("torch")

    def work() -> list[str]:
        companion.backend("simulator")
        with companion.backend("kernel"):
            pass
        return [companion.backend(), in_another_thread(companion.backend)]

    assert in_another_thread(work) == ["simulator", "torch"]
    assert companion.backend() == "torch"


def test_threads_whose_blocks_overlap_do_not_disturb_one_another() -> None:
    names = ["torch", "simulator"] * 4
    together = threading.Barrier(len(names))

    def work(name: str) -> set[str]:
        together.wait()
        seen = set()
        for _ in range(200):
            with companion.backend(name):
                seen.add(choice.choose(torch.zeros(1), OPERATOR))
        return seen

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            assert list(pool.map(work, names)) == [{name} for name in names]
    finally:
        sys.setswitchinterval(interval)
    assert choice._selected() == "auto"


def test_tasks_inherit_a_choice_and_keep_their_own() -> None:
    async def chosen(name: str) -> list[str]:
        inherited = companion.backend()
        with companion.backend(name):
            await asyncio.sleep(0)
            return [inherited, companion.backend()]

    async def work() -> list[list[str]]:
        with companion.backend("torch"):
            return await asyncio.gather(chosen("simulator"), chosen("kernel"))

    # in a thread of its own: a browser that other tests have opened keeps a loop running in this one
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: asyncio.run(work())).result()
    assert found == [["torch", "simulator"], ["torch", "kernel"]]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["this thread", "another thread"])
def test_a_backward_pass_computes_as_its_forward_pass_was_told_to(elsewhere: bool) -> None:
    seen = []

    def forward(x: Tensor) -> tuple[Tensor, tuple[()]]:
        return x.exp(), ()

    def backward(grad: Tensor, needs: object, saved: object, x: Tensor) -> tuple[Tensor]:
        seen.append(companion.backend())
        return (grad * x.exp(),)

    x = torch.zeros(1, requires_grad=True)
    with companion.backend("simulator"):
        y = operators.differentiable(torch.exp, forward, backward)(x)
    companion.backend("torch")
    if elsewhere:
        in_another_thread(y.backward)
    else:
        y.backward()
    assert seen == ["simulator"]
    assert companion.backend() == "torch"


@pytest.mark.usefixtures("fresh_compiler")
def test_what_is_compiled_may_ask_who_would_compute() -> None:
    companion.backend("simulator")
    compiled = torch.compile(lambda x: x + (companion.backend() == "simulator"), fullgraph=True, backend="eager")
    assert compiled(torch.zeros(1)) == 1


def test_an_unknown_backend_is_refused_and_changes_nothing() -> None:
    companion.backend("torch")
    with pytest.raises(ValueError, match="backend: got 'cuda', allowed are 'auto', 'torch', 'kernel', 'simulator'"):
        companion.backend("cuda")
    assert companion.backend() == "torch"


def test_auto_says_who_would_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert companion.backend() == "torch"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(choice, "_launchable", lambda: True)
    monkeypatch.setattr(choice, "trusts_none", lambda device: False)
    assert companion.backend() == "kernel"
    monkeypatch.setattr(choice, "_launchable", lambda: False)
    assert companion.backend() == "torch"


def test_auto_computes_a_cpu_tensor_with_torch() -> None:
    assert choice.choose(torch.zeros(1), OPERATOR) == "torch"


def test_float64_is_always_computed_with_torch() -> None:
    for name in ("kernel", "simulator"):
        with companion.backend(name):
            assert choice.choose(torch.zeros(1, dtype=torch.float64), OPERATOR) == "torch"


def test_the_kernel_refuses_a_cpu_tensor() -> None:
    with companion.backend("kernel"), pytest.raises(RuntimeError) as caught:
        aglu(torch.zeros(3), 1.0, 1.0)
    assert "backend 'kernel': the tensor is on cpu, the kernel needs a CUDA device" in str(caught.value)
    assert "'auto', 'torch' or 'simulator'" in str(caught.value)


def test_the_simulator_refuses_a_tensor_that_is_not_on_the_cpu() -> None:
    with companion.backend("simulator"), pytest.raises(RuntimeError, match="the tensor is on meta"):
        aglu(torch.zeros(3, device="meta"), 1.0, 1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_auto_computes_a_cuda_tensor_with_the_kernel() -> None:
    assert choice.choose(torch.zeros(1, device="cuda"), OPERATOR) == "kernel"
    with companion.backend("simulator"), pytest.raises(RuntimeError, match="the tensor is on cuda:0"):
        choice.choose(torch.zeros(1, device="cuda"), OPERATOR)


def test_the_choice_is_not_made_at_import() -> None:
    code = "import companion; print(companion.backend('simulator'), companion.backend())"
    root = Path(companion.__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert result.stdout == "simulator simulator\n"


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap], ids=["grad", "vmap"])
def test_a_transform_is_noticed(transform: object) -> None:
    seen = []

    def f(x: torch.Tensor) -> torch.Tensor:
        seen.append(operators.transformed())
        return x.sum()

    transform(f)(torch.zeros(1))  # type: ignore[operator]
    assert seen == [True]
    assert not operators.transformed()


def test_a_compiler_that_is_too_old_is_refused_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "COMPILES", False)
    z = torch.linspace(-3, 3, 8, requires_grad=True)

    def compiled(fullgraph: bool) -> torch.Tensor:
        torch._dynamo.reset()
        result: torch.Tensor = torch.compile(lambda z: aglu(z, 1.0, 0.5), fullgraph=fullgraph, backend="eager")(z)
        return result

    with pytest.raises((torch._dynamo.exc.Unsupported, RuntimeError)):
        compiled(fullgraph=True)
    wanted, found = aglu(z, 1.0, 0.5), compiled(fullgraph=False)
    assert torch.allclose(wanted, found)
    assert torch.allclose(*(torch.autograd.grad(y.sum(), z)[0] for y in (wanted, found)))


@together("name, call", of_rooms("SPARSE").items(), of=lambda case: case[0])
def test_a_sparse_tensor_is_refused(name: str, call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=f"{name}: got layout torch.sparse_.*, allowed is a dense tensor"):
        call()


def test_a_nested_tensor_is_refused() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises(TypeError, match="y: got a nested tensor, allowed is a dense tensor"):
        functional.la_silu(nested)


@together("name", [*functional.__all__, "a function of it", "a module", "attention", "a network"])
def test_torchscript_is_refused_with_what_there_is_instead(name: str) -> None:
    def of_it(z: torch.Tensor) -> torch.Tensor:
        return functional.la_silu(z)

    others: dict[str, Any] = {
        "a function of it": of_it,
        "a module": companion.DACConv2d(2, 2, 1),
        "attention": companion.SpatialChannelAttention(4),
        "a network": nn.Sequential(nn.Linear(2, 2), companion.AGLU()),
    }
    with pytest.raises(TypeError, match=r"torch\.jit\.script: got \w+, .* torch\.compile, torch\.export"):
        torch.jit.script(others.get(name) or getattr(functional, name))


@together("name, case", of_rooms("OVERWRITTEN").items(), of=lambda case: case[0])
def test_what_follows_may_work_in_place(
    name: str, case: tuple[Callable[..., Tensor], list[Tensor]], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion.dac.op, "SMALL", 0)
    function, operands = case
    leaves = [x.detach().to("cuda" if backend == "kernel" else "cpu").requires_grad_() for x in operands]
    once, twice = function(*leaves), function(*leaves)
    twice.mul_(2)
    assert torch.equal(twice, 2 * once)
    for one, two in zip(torch.autograd.grad(once.sum(), leaves), torch.autograd.grad(twice.sum(), leaves), strict=True):
        torch.testing.assert_close(two, 2 * one)


def negative_view(x: Tensor) -> Tensor:
    """The same numbers, with torch's negative bit."""
    return torch._neg_view(-x)


@together("name, case", of_rooms("LAUNCHED").items(), of=lambda case: case[0])
def test_signs_that_are_not_in_memory_count(
    name: str, case: tuple[Callable[..., Tensor], list[Tensor]], backend: str
) -> None:
    def computed(changed: Callable[[Tensor], Tensor]) -> list[Tensor]:
        leaves = [changed(x.to("cuda" if backend == "kernel" else "cpu")).requires_grad_() for x in case[1]]
        f = case[0](*leaves)
        return [f, *torch.autograd.grad(f, leaves, changed(torch.ones_like(f)))]

    for one, two in zip(computed(negative_view), computed(Tensor.clone), strict=True):
        torch.testing.assert_close(one, two)


def test_a_distributed_tensor_is_taken(tmp_path: Path) -> None:
    tensors = pytest.importorskip("torch.distributed.tensor")
    if not hasattr(tensors, "distribute_module"):
        pytest.skip("torch 2.4 has no public DTensor")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        mesh = tensors.init_device_mesh("cpu", (1,))
        x = torch.randn(4, 6)
        for layer in (companion.AGLU(), companion.RAA(6)):
            expected = layer(x)
            there = tensors.distribute_tensor(x, mesh, [tensors.Replicate()]).requires_grad_()
            found = tensors.distribute_module(layer, mesh)(there)
            torch.testing.assert_close(found.full_tensor(), expected)
            found.sum().backward()
            assert there.grad is not None
    finally:
        torch.distributed.destroy_process_group()
