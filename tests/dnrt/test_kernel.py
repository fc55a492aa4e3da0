"""raa.cu: its machine code, its values, its memory accesses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import companion
from companion import simulator
from companion.dnrt.kernel import KERNELS
from companion.dnrt.op import raa
from tests.cases import together
from tests.cuda.machine_code import ARCHITECTURES, machine_code, under_the_locked_compiler
from tests.cuda.runs import memory_and_threads
from tests.cuda.sources import changed, with_instances
from tests.dnrt.test_op import differentiated, operands, written_out

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

# --- machine code ---

#: Packs of 16 bytes that a thread of a row's layout holds.
PACKS = {"short": 4, "warp": 8, "block": 8}
#: Registers per thread, at most: 64 let an SM hold 1024 threads, 128 half as many. A backward pass holds two tiles.
REGISTERS = {"forward": 80, "backward": 128}
#: Instructions per element of a full tile with Φ, at most, f32 and 16 bit: all that is there, though weights are loaded
#: in one of two ways. Forward 60 and 30, backward 90 and 47 would hide behind the memory of an H200.
INSTRUCTIONS = {"forward": (67, 34), "backward": (72, 49)}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills_and_registers_leave_room_for_enough_threads(arch: int) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(KERNELS.source, arch).items():
        assert not code.spills, name
        assert code.registers <= REGISTERS["forward" if "forward" in name else "backward"], name


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_rows_are_read_and_written_sixteen_bytes_at_a_time(arch: int) -> None:
    for name, code in machine_code(KERNELS.source, arch).items():
        _, direction, layout, *_ = [*name.split("_"), ""]
        if layout not in PACKS:
            continue
        read, written = code.count(r"\bLDG?\.\S*128"), code.count(r"\bSTG?\.\S*128")
        weights = 1 if name.endswith("f32") else 2  # packs of weights for a pack of elements
        if direction == "forward":
            assert (read, written) == (PACKS[layout] * (1 + weights), PACKS[layout]), name
        else:
            assert read >= 2 * PACKS[layout] + PACKS[layout] * weights, name
            assert written == PACKS[layout], name


def test_instructions_per_element(tmp_path: Path) -> None:
    under_the_locked_compiler()
    instances = "COMPANION_KERNELS(f32, float)\nCOMPANION_KERNELS(bf16, __nv_bfloat16)\n"
    text = with_instances(KERNELS.source, instances)
    three = "if (gate == 0) f(Normal<T>());\n    else if (gate == 1) f(Sigmoid<T>());\n    else f(Step());"
    only_phi = changed(tmp_path, KERNELS.source, text, {three: "f(Normal<T>());"})
    counted = 0
    for name, code in machine_code(only_phi, 90).items():
        _, direction, layout, *_ = [*name.split("_"), ""]
        if layout in PACKS:
            short = not name.endswith("f32")
            per_element = len(code.instructions) / (PACKS[layout] * (8 if short else 4))
            assert per_element <= INSTRUCTIONS[direction][short], (name, per_element)
            counted += 1
    assert counted == 2 * 2 * len(PACKS)


# --- values ---

#: Around every boundary: of a pack, of a number of lanes, of a layout, of a block's size, of a chunk.
LENGTHS = [1, 2, 3, 7, 8, 9, 31, 33, 64, 127, 129, 511, 515, 516, 517, 1027, 1029, 2055, 2057, 5000, 16_389, 40_001]


@needs_simulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@together("length", LENGTHS)
def test_rows_of_every_length(length: int, dtype: torch.dtype) -> None:
    rows = 3 if length < 2000 else 2
    assert_right((rows, length), -1, dtype)


@needs_simulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@together("shape", [(1, 1, 2), (2, 3, 1025), (1, 70, 8), (3, 9, 49), (5, 17, 40), (1, 8, 33)])
def test_maps_of_every_size(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_right(shape, 1, dtype)


@needs_simulator
def test_many_rows_make_several_chunks_of_columns() -> None:
    for rows, length in ((1000, 4), (131, 5), (333, 40)):
        assert_right((rows, length), -1, torch.float32)


@needs_simulator
@together("start", [1, 2, 3, 5])
def test_tensors_may_begin_anywhere_in_memory(start: int) -> None:
    for shape, dim in (((3, 37), -1), ((2, 5, 8), 1)):
        x, weight, bias = operands(shape, dim)
        memory = torch.empty(x.numel() + start)[start:].view(shape).copy_(x)
        assert_gradients([memory, weight, bias], dim)


def assert_right(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    """Value and gradients agree with float64 to rounding, relative to what they are summed from."""
    assert_gradients(operands(shape, dim, dtype=dtype), dim)


def assert_gradients(given: list[Tensor], dim: int) -> None:
    x, weight, _ = given
    grad = torch.randn(x.shape).to(x.dtype)
    with companion.backend("simulator"):
        found = differentiated(lambda *x: raa(*x, dim=dim), given, grad)
    exact = differentiated(lambda *x: written_out(*x, "gelu", dim), [x.double() for x in given], grad.double())
    # Σ|w x|: rounding of the offset moves every gate by as much
    offset = (x.double() * weight.double().view([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)])).abs().sum(dim)
    short = x.dtype != torch.float32
    for one, other in zip(found, exact, strict=True):
        half = torch.finfo(one.dtype).eps / 2
        error = (5e-5 if short else 2e-6) * (1 + offset.max().item()) * max(other.abs().max().item(), 1)
        assert ((one.double() - other).abs() <= half * other.abs() + error).all()


# --- memory and threads ---

NAMES = [name for name in KERNELS.names if name.endswith("_f32") or name in ("raa_join_chunks", "raa_reduce")]


def cases() -> Iterator[tuple[list[Tensor], int, Tensor]]:
    """Every layout, even and ragged, some with several rows to a warp that the last block does not fill."""
    torch.manual_seed(0)
    for shape, dim in (
        *(((37, 4), -1), ((5, 3), -1), ((9, 33), -1), ((3, 515), -1), ((5, 1000), -1), ((2, 1025), -1)),
        *(((70, 16), -1), ((1, 16_389), -1), ((2, 11, 40), 1), ((3, 9, 7), 1)),
    ):
        yield operands(shape, dim), dim, torch.randn(shape)


def results(given: list[Tensor], dim: int, grad: Tensor) -> list[Tensor]:
    """The values and gradients with the first two gates."""
    with companion.backend("simulator"):
        return [
            result
            for gate in ("gelu", "silu")
            for result in differentiated(lambda *x, gate=gate: raa(*x, gate=gate, dim=dim), given, grad)
        ]


FAULTS: dict[str, dict[str, str]] = {
    "no bias": {"const float c = sum[0] + *b;": "const float c = sum[0];"},
    "rows that do not exist": {
        "if (exists && group.thread == 0) offset[row] = c;": "if (group.thread == 0) offset[row] = c;"
    },
    "weights of another place": {
        "const float* const weights = w + (chunk.start - chunk.row * row_length);\n    float sum": (
            "const float* const weights = w;\n    float sum"
        )
    },
    "chunks that are not joined": {"i < chunks_per_row; i += blockDim.x": "i < 1; i += blockDim.x"},
    "no barrier between warps": {
        "scratch[warp][lane][j] = sum[j];\n    __syncthreads();": "scratch[warp][lane][j] = sum[j];"
    },
    "a vector too many": {"exists = vector < outer * inner;": "exists = vector <= outer * inner;"},
    "maps of the first image": {"image * channels * inner + (vector - image * inner)": "vector - image * inner"},
    "every thread's bias": {"if (channel == 0) of_chunk[channels] = sum;": "of_chunk[channels] = sum * channel;"},
    "only the first part of a column": {"part < parts; part += warps": "part < 1; part += warps"},
    "a slope that forgets x": {"h = g * x * slope;": "h = g * slope;"},
}


TestMemoryAndThreads = memory_and_threads(KERNELS, "COMPANION_KERNELS(f32, float)", NAMES, results, cases, FAULTS)


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_two_runs_give_the_same_bits() -> None:
    for given, dim, grad in cases():
        there = [x.cuda() for x in given]
        with companion.backend("kernel"):
            one, other = (differentiated(lambda *x, dim=dim: raa(*x, dim=dim), there, grad.cuda()) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
