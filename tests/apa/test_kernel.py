"""aglu.cu: its machine code, its arithmetic of places, its memory accesses, and its launches on a GPU."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import companion
from companion.apa.kernel import KERNELS
from companion.functional import aglu, apa
from tests.cuda.machine_code import ARCHITECTURES, machine_code, under_the_locked_compiler
from tests.cuda.runs import memory_and_threads

# --- machine code ---

#: Instructions per element in the loop over packs, at most: (direction, bits) on sm_80 and later, and on sm_75, which
#: converts bfloat16 and keeps NaN in several instructions.
INSTRUCTIONS = {("forward", 32): 54, ("forward", 16): 27, ("backward", 32): 77, ("backward", 16): 48}
INSTRUCTIONS_SM75 = {("forward", 32): 58, ("forward", 16): 42, ("backward", 32): 77, ("backward", 16): 62}
#: Registers per thread, at most: 80 let an SM hold three blocks of 256 threads, 128 two.
REGISTERS = {"row": 80, "column": 128}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills_and_registers_leave_room_for_enough_threads(arch: int) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(KERNELS.source, arch).items():
        assert not code.spills, name
        limit = REGISTERS["row" if "row" in name else "column"]
        assert code.registers <= limit, name


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_memory_is_read_and_written_sixteen_bytes_at_a_time(arch: int) -> None:
    for name, code in machine_code(KERNELS.source, arch).items():
        if name == "aglu_reduce":
            continue
        inputs = 2 if "backward" in name else 1
        wide = [text for _, text in code.instructions if ".128" in text]
        assert sum("LDG" in text for text in wide) >= inputs, name
        assert sum("STG" in text for text in wide) >= 1, name
        if "row" in name:
            accesses = [text for text in code.loop_over_packs() if re.search(r"\b(LD|ST)G?\.", text)]
            assert len(accesses) == inputs + 1, name
            assert all(".128" in text for text in accesses), name


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_instructions_per_element(arch: int) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(KERNELS.source, arch).items():
        if "row" not in name:
            continue
        bits = 32 if name.endswith("f32") else 16
        limits = INSTRUCTIONS_SM75 if arch == 75 else INSTRUCTIONS
        per_element = len(code.loop_over_packs()) / (128 / bits)
        assert per_element <= limits[name.split("_")[1], bits], name


# --- memory and threads ---

NAMES = [name for name in KERNELS.names if re.fullmatch(r"aglu_(\w+_)?(row|column)_f32|aglu_reduce", name)]


def forward_and_backward(z: Tensor, g: Tensor, kappa: Tensor, lam: Tensor) -> list[Tensor]:
    """The value and the gradients, through the simulator's backend."""
    inputs = [x.detach().requires_grad_() for x in (z, kappa, lam)]
    with companion.backend("simulator"):
        y = aglu(*inputs)
        return [y.detach(), *torch.autograd.grad(y, inputs, g)]


def cases() -> Iterator[list[Tensor]]:
    """z, g, κ, λ: rows and columns, odd sizes, and starts in the middle of a pack, in several combinations."""
    generator = torch.Generator().manual_seed(0)

    def random(start: int, *shape: int) -> Tensor:
        return torch.randn(math.prod(shape) + start, generator=generator)[start:].view(shape)

    scalar, three, four = ([torch.rand(c, generator=generator) + 0.5 for _ in range(2)] for c in ((), (3,), (4,)))
    yield [random(1, 1037), random(1, 1037), *scalar]  # the same start: packs, and single elements around them
    yield [random(3, 1101), random(2, 1101), *scalar]  # different starts: single elements only
    yield [random(0, 2), random(0, 2), *scalar]
    yield [random(0, 5, 3, 39), random(0, 5, 3, 39), *three]  # rows that begin anywhere
    yield [random(1, 131, 3), random(0, 131, 3), *three]  # columns, one element a thread
    yield [random(0, 70, 4), random(0, 70, 4), *four]  # columns, a pack a thread


FAULTS: dict[str, dict[str, str]] = {
    "tail": {"for (int64 n = thread; n < singles;": "for (int64 n = thread; n <= singles;"},
    "head": {"(pack_bytes - offset) % pack_bytes / sizeof(T)": "offset / sizeof(T)"},
    "barrier": {
        "if (lane == 0) scratch[warp] = x;\n    __syncthreads();": "if (lane == 0) scratch[warp] = x;",
    },
    "chunk": {"return {row, row * row_length + offset, rest": "return {row, row * row_length, rest"},
    "rows": {"first + rows_per_chunk < rows ? first + rows_per_chunk : rows": "first + rows_per_chunk"},
}


def with_a_long_one() -> list[list[Tensor]]:
    """One more, with several chunks and several warps in the second stage."""
    z, g = torch.randn(2, 70_000, generator=torch.Generator().manual_seed(1))
    return [*cases(), [z, g, torch.tensor(1.2), torch.tensor(0.6)]]


#: One instance of the kernels is enough here, and compiles in a fraction of the time.
TestMemoryAndThreads = memory_and_threads(
    KERNELS, "COMPANION_KERNELS(aglu, true, f32, float)", NAMES, forward_and_backward, with_a_long_one, FAULTS
)


# --- on a GPU ---


@pytest.fixture
def gpu() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    with companion.backend("kernel"):
        yield


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
class TestOnAGpu:
    def test_it_agrees_with_the_simulator(self) -> None:
        for case in cases():
            simulated = forward_and_backward(*case)
            inputs = [x.detach().cuda().requires_grad_() for x in (case[0], case[2], case[3])]
            y = aglu(*inputs)
            for one, other in zip([y, *torch.autograd.grad(y, inputs, case[1].cuda())], simulated, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=2e-5, atol=1e-4)

    def test_a_training_step_is_captured_and_replayed(self) -> None:
        companion.warmup()
        z = torch.randn(64, 1000, device="cuda", requires_grad=True)
        kappa, lam = (torch.tensor(p, device="cuda", requires_grad=True) for p in (1.2, 0.6))

        def step() -> tuple[Tensor, ...]:
            return torch.autograd.grad(aglu(z, kappa, lam).square().sum(), (z, kappa, lam))

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        with torch.no_grad():
            z.copy_(torch.randn_like(z))
        graph.replay()
        for one, other in zip(captured, step(), strict=True):
            assert torch.equal(one, other)

    def test_it_runs_on_the_current_stream(self) -> None:
        x = torch.randn(1 << 20, device="cuda")
        expected = aglu(x + 1, 1.2, 0.6)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            y = aglu(x + 1, 1.2, 0.6)
        stream.synchronize()
        assert torch.equal(y, expected)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
    def test_it_runs_on_the_device_of_its_input(self) -> None:
        x = torch.randn(1000)
        first, second = (aglu(x.to(f"cuda:{i}"), 1.2, 0.6) for i in (0, 1))
        assert second.device.index == 1
        assert torch.equal(first.cpu(), second.cpu())

    def test_more_than_2_to_the_31_elements(self) -> None:
        if torch.cuda.mem_get_info()[0] < 20 * 2**30:
            pytest.skip("needs 20 GiB of GPU memory")
        n = 2**31 + 1031
        z = torch.empty(n, device="cuda", dtype=torch.bfloat16).normal_()
        y = apa(z, 1.2, 0.6)
        for part in (slice(0, 1000), slice(2**31 - 1000, 2**31 + 1000), slice(n - 1000, n)):
            assert torch.equal(y[part], apa(z[part].clone(), 1.2, 0.6))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_a_call_takes_the_host_less_than_100_microseconds(self, dtype: torch.dtype) -> None:
        z = torch.randn(1000, device="cuda", dtype=dtype)
        kappa, lam = (torch.tensor(p, device="cuda") for p in (1.2, 0.6))
        times = []
        for _ in range(30):
            start = time.perf_counter()
            for _ in range(50):
                aglu(z, kappa, lam)
            times.append((time.perf_counter() - start) / 50)
            torch.cuda.synchronize()
        assert min(times) < 100e-6
