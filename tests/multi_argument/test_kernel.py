"""inner.cu: its machine code, its values, its memory accesses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from companion import simulator
from companion.cuda.launch import Kernels
from companion.multi_argument import kernel
from tests.cuda.machine_code import ARCHITECTURES, under_the_locked_compiler, usage
from tests.cuda.runs import assert_equal_bits, is_noticed
from tests.cuda.sources import changed
from tests.together import together

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

# --- machine code ---

#: Registers per thread at most: an SM holds at least two blocks of 128 threads.
REGISTERS = 255


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills_and_registers_leave_room_for_enough_threads(arch: int) -> None:
    under_the_locked_compiler()
    for name, (registers, stack, local) in usage(kernel.INNER.source, arch).items():
        assert (stack, local) == (0, 0), name
        assert registers <= REGISTERS, name


# --- values ---


class Case(NamedTuple):
    """Operands and the gradient of the result."""

    x: Tensor
    weights: list[Tensor]
    biases: list[Tensor]
    grad: Tensor
    arity: int
    dim: int


def multiples(*shape: int, unit: float, most: int, odd: bool = False) -> Tensor:
    """Random multiples of a unit, up to a factor of `most`; odd ones are never 0."""
    if odd:
        return (2 * torch.randint(-(most + 1) // 2, (most + 1) // 2, shape) + 1) * unit
    return torch.randint(-most, most + 1, shape) * unit


def on_a_grid(shape: tuple[int, ...], arity: int, dim: int, dtype: torch.dtype = torch.float32) -> Case:
    """Numbers of few bits: float32 holds all of h and z, bfloat16 all of h, and no z is 0, so that no rounding moves a
    unit over a kink."""
    x = multiples(*shape, unit=1 / 2, most=3, odd=True).to(dtype)
    weights = [
        multiples(64, arity, unit=1 / 4, most=4),
        multiples(64, 64, unit=1 / 16, most=7),
        multiples(1, 64, unit=1 / 8, most=7),
    ]
    biases = [multiples(64, unit=1 / 16, most=15, odd=True), multiples(64, unit=1 / 512, most=255, odd=True)]
    biases.append(multiples(1, unit=1 / 8, most=7))
    result = list(shape)
    result[dim] //= arity
    return Case(x, weights, biases, multiples(*result, unit=1 / 16, most=15).to(dtype), arity, dim)


def written_out(x: Tensor, weights: list[Tensor], biases: list[Tensor], arity: int, dim: int) -> Tensor:
    """The network on the arguments of every unit, layer by layer."""
    dim %= x.ndim
    units = x.unflatten(dim, (-1, arity)).movedim(dim + 1, -1)
    first, second, last = (lambda u, w=w, b=b: u @ w.T + b for w, b in zip(weights, biases, strict=True))
    return last(second(first(units).relu()).relu()).squeeze(-1)


def exact(case: Case) -> list[Tensor]:
    """The result and the gradients of x, and of weight and bias of each layer in turn, in float64."""
    layers = [each for layer in zip(case.weights, case.biases, strict=True) for each in layer]
    x, *parameters = (each.double().requires_grad_() for each in (case.x, *layers))
    y = written_out(x, parameters[::2], parameters[1::2], case.arity, case.dim)
    return [y.detach(), *torch.autograd.grad(y, [x, *parameters], case.grad.double())]


def simulated(case: Case) -> list[Tensor]:
    """The same by the kernels."""
    x, weights, biases, grad, arity, dim = case
    y = kernel.forward(x, weights, biases, arity, dim, simulated=True)
    dx, of_parameters = kernel.backward(grad, x, weights, biases, arity, dim, learned=True, simulated=True)
    assert of_parameters is not None
    return [y, dx, *of_parameters]


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks at most, so that each goes through several tiles."""
    monkeypatch.setattr(kernel, "MOST_BLOCKS", {"forward": 2, "backward": 2})


#: Rows and maps; one unit, fewer and more than a tile of either kernel; every number of arguments.
SHAPES: list[tuple[tuple[int, ...], int, int]] = [
    ((1, 2), 2, -1),
    ((5, 14), 2, -1),
    ((33, 2), 2, -1),
    ((9, 66), 2, -1),
    ((2, 4, 3, 5), 2, 1),
    ((3, 10, 7), 2, 1),
    ((7, 5), 1, -1),
    ((2, 6, 5), 3, 1),
    ((3, 4), 4, 1),
    ((2, 5, 9), 5, -2),
    ((11, 12), 6, -1),
    ((4, 7), 7, -1),
    ((1, 16, 2, 9), 8, 1),
]


@needs_simulator
@together("shape, arity, dim", SHAPES)
def test_float32_is_right_to_rounding(shape: tuple[int, ...], arity: int, dim: int) -> None:
    case = on_a_grid(shape, arity, dim)
    for one, other in zip(simulated(case), exact(case), strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= 1e-6 * other.abs().max()


@needs_simulator
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_are_computed_in_float32(dtype: torch.dtype) -> None:
    for shape, dim in (((41, 6), -1), ((2, 6, 13), 1)):
        case = on_a_grid(shape, 2, dim, dtype)
        for one, other in zip(simulated(case), exact(case), strict=True):
            half = torch.finfo(one.dtype).eps / 2
            assert ((one.double() - other).abs() <= half * other.abs() + 1e-6 * other.abs().max()).all()


@needs_simulator
def test_ordinary_numbers_are_right_to_rounding() -> None:
    torch.manual_seed(0)
    case = on_a_grid((29, 6), 2, -1)
    case = case._replace(x=torch.randn(29, 6), weights=[torch.randn(w.shape) / 8 for w in case.weights])
    for one, other in zip(simulated(case), exact(case), strict=True):
        assert (one.double() - other).abs().max() <= 1e-6 * other.abs().max()


@needs_simulator
def test_a_nan_makes_its_own_unit_nan_and_no_other() -> None:
    case = on_a_grid((6, 4), 2, -1)
    whole, *_ = simulated(case)
    case.x[3, 2] = float("nan")
    y, dx, *_ = simulated(case)
    place = torch.zeros(6, 2, dtype=torch.bool)
    place[3, 1] = True
    assert torch.equal(y.isnan(), place)
    assert torch.equal(y[~place], whole[~place])
    assert (dx.double() - exact(case)[1]).abs().max() <= 1e-6 * dx.abs().max()  # no slope depends on the NaN


@needs_simulator
def test_a_network_that_does_not_learn_costs_no_sums() -> None:
    x, weights, biases, grad, arity, dim = on_a_grid((41, 6), 2, -1)
    dx, of_parameters = kernel.backward(grad, x, weights, biases, arity, dim, learned=False, simulated=True)
    with_sums, _ = kernel.backward(grad, x, weights, biases, arity, dim, learned=True, simulated=True)
    assert of_parameters is None
    assert torch.equal(dx, with_sums)


def test_what_the_kernels_serve() -> None:
    x, weights, _, _, arity, _ = on_a_grid((2, 4), 2, -1)
    assert kernel.serves(x, weights, arity)
    assert kernel.serves(x.half(), weights, arity)
    assert not kernel.serves(x.double(), weights, arity)
    assert not kernel.serves(x, weights[:2] + weights[1:], arity)
    assert not kernel.serves(x, [torch.zeros(32, 2), torch.zeros(32, 32), torch.zeros(1, 32)], arity)
    nine = [torch.zeros(64, 9), *weights[1:]]
    assert not kernel.serves(torch.zeros(2, 9), nine, 9)


def test_memory_for_sums_is_bounded() -> None:
    parts = [kernel._blocks("backward", units) for units in (1, 32, 33, 10**6, 34 * 10**6, 2**30)]
    assert parts == [1, 1, 2, 528, 528, 2**14]


# --- memory and threads ---

INSTANCES = re.compile(r"^COMPANION_KERNELS\(\w+, \w+\)$", re.MULTILINE)


def changed_source(folder: Path, kernels: Kernels, suffix: str, changes: dict[str, str] | None = None) -> Path:
    """Write a copy of a source for one dtype, with changes."""
    element = {"f32": "float", "bf16": "__nv_bfloat16"}[suffix]
    text = INSTANCES.sub("", kernels.source.read_text()) + f"COMPANION_KERNELS({suffix}, {element})\n"
    return changed(folder, kernels.source, text, changes)


def names(kernels: Kernels, suffix: str) -> list[str]:
    """The kernels of such a copy."""
    return [name for name in kernels.names if name.endswith((f"_{suffix}", "_reduce"))]


def cases() -> Iterator[Case]:
    """Tiles that end within a block, rows and maps, several tiles to a block."""
    torch.manual_seed(0)
    for shape, arity, dim in (((31, 10), 2, -1), ((2, 4, 9), 2, 1), ((2, 9, 5), 3, 1), ((9, 8), 8, -1)):
        yield on_a_grid(shape, arity, dim)


def run(*case: object) -> list[Tensor]:
    return simulated(Case(*case))  # type: ignore[arg-type]


@pytest.fixture
def expected(few_blocks: None) -> list[list[Tensor]]:
    """The results for all cases, threads in their natural order."""
    return [run(*case) for case in cases()]


@needs_simulator
def test_nothing_is_read_or_written_out_of_bounds(
    expected: list[list[Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = changed_source(tmp_path, kernel.INNER, "f32")
    sanitized = simulator.load(source, names(kernel.INNER, "f32"), sanitize=True)
    monkeypatch.setattr(kernel.INNER, "_simulator", lambda: sanitized)
    assert_equal_bits(run, cases(), expected)


@needs_simulator
@pytest.mark.parametrize("order", ["reversed", "shuffled:1", "warps"])
def test_the_result_does_not_depend_on_the_order_of_threads(
    order: str, expected: list[list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", order)
    assert_equal_bits(run, cases(), expected)


FAULTS: dict[str, dict[str, str]] = {
    "no bias in the second layer": {"product(h[s], w) + network.b[j]": "product(h[s], w)"},
    "a unit too many": {"if (unit < units) y[unit]": "if (unit <= units) y[unit]"},
    "only the first tile": {"first += static_cast<int64>(gridDim.x) * tile_units": "first = units"},
    "arguments side by side in maps": {"return map * arity * inner + (unit - map * inner);": "return unit * arity;"},
    "half of a unit's sum": {"return x + __shfl_xor_sync(full_warp, x, 2);": "return x;"},
    "no barrier before the sums": {
        "continue;\n        __syncthreads();\n        sums.add_second": "continue;\n        sums.add_second"
    },
    "delta before E is added up": {"sums.add_second(stage);\n        __syncthreads();": "sums.add_second(stage);"},
    "no barrier before the next tile": {
        "sums.add_first(stage, arity);\n        __syncthreads();": "sums.add_first(stage, arity);"
    },
    "a slope at inactive neurons": {"delta[m] = h[m] <= 0.0f ? 0.0f : delta[m];": "delta[m] = delta[m];"},
    "gradients of the second layer without its slope": {"z <= 0.0f ? 0.0f : slope": "slope"},
    "the last argument forgotten": {"if (k <= arity) first[q] = fmaf": "if (k < arity) first[q] = fmaf"},
    "only the first part of a column": {"part < parts; part += warps": "part < 1; part += warps"},
}


@needs_simulator
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str, expected: list[list[Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = changed_source(tmp_path, kernel.INNER, "f32", FAULTS[fault])
    module = simulator.load(source, names(kernel.INNER, "f32"))
    monkeypatch.setattr(kernel.INNER, "_simulator", lambda: module)
    assert is_noticed(run, cases(), expected, monkeypatch)
