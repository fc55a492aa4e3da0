"""inner.cu and inner_mma.cu: their machine code, their values, their memory accesses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import companion
from companion import simulator
from companion.cuda.launch import Kernels
from companion.functional import multi_argument, quadratic_form
from companion.multi_argument import kernel
from tests.cases import together
from tests.cuda.machine_code import ARCHITECTURES, machine_code, under_the_locked_compiler, usage
from tests.cuda.runs import memory_and_threads

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

# --- machine code ---

#: Registers per thread at most: an SM holds at least two blocks of 128 threads.
REGISTERS = 255
#: mma of a warp for its 16 units, as inner_mma.cu counts them. The sums over 64 units are shared by four warps.
PRODUCTS = {"forward": 8 + 32, "backward": 8 + 32 + 32 + 4 + 4 * (8 + 3)}


SOURCES = pytest.mark.parametrize("kernels", [kernel.INNER, kernel.INNER_MMA], ids=lambda kernels: kernels.source.stem)


@SOURCES
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills_and_registers_leave_room_for_enough_threads(kernels: Kernels, arch: int) -> None:
    under_the_locked_compiler()
    for name, (registers, stack, local) in usage(kernels.source, arch).items():
        assert (stack, local) == (0, 0), name
        assert registers <= REGISTERS, name


@pytest.mark.parametrize("arch", [arch for arch in ARCHITECTURES if arch >= kernel.TENSOR_CORES])
def test_sixteen_units_take_so_many_products(arch: int) -> None:
    for name, code in machine_code(kernel.INNER_MMA.source, arch).items():
        products = code.count(r"\bHMMA\.16816")
        # some compilers make one loop for units side by side and one for maps
        assert products in (n * PRODUCTS["forward" if "forward" in name else "backward"] for n in (1, 2)), name


#: Of the loop over the neurons of the second layer: the number of multiply-adds, and of instructions at most.
LOOPS = {"inner_forward_f32": (2 * 64 + 2, 170), "inner_backward_f32": (4 * 2 * 16, 205)}


def test_the_loop_over_neurons_is_mostly_multiply_adds() -> None:
    under_the_locked_compiler()
    code = machine_code(kernel.INNER.source, 90)
    for name, (products, most) in LOOPS.items():
        bodies = []
        for address, text in code[name].instructions:
            target = re.search(r"BRA(?:\.\w+)* .*?(0x[0-9a-f]+)", text)
            if target and int(target[1], 16) < address:
                bodies.append([text for at, text in code[name].instructions if int(target[1], 16) <= at <= address])
        (body,) = [body for body in bodies if sum("FFMA" in text for text in body) == products]
        assert len(body) <= most, name


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


def two_blocks(patch: pytest.MonkeyPatch) -> None:
    """Two blocks at most, so that each goes through several tiles."""
    patch.setattr(kernel, "MOST_BLOCKS", {"forward": 2, "backward": 2})


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    two_blocks(monkeypatch)


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


SHORT = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@needs_simulator
@pytest.mark.usefixtures("few_blocks")
@SHORT
def test_without_tensor_cores_sixteen_bits_are_computed_in_float32(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "has_tensor_cores", lambda x: False)
    for shape, dim in (((41, 6), -1), ((2, 6, 13), 1)):
        case = on_a_grid(shape, 2, dim, dtype)
        for one, other in zip(simulated(case), exact(case), strict=True):
            half = torch.finfo(one.dtype).eps / 2
            assert ((one.double() - other).abs() <= half * other.abs() + 1e-6 * other.abs().max()).all()


@needs_simulator
@SHORT
@together("shape, arity, dim", SHAPES)
def test_tensor_cores_are_right_where_factors_have_few_bits(
    shape: tuple[int, ...], arity: int, dim: int, dtype: torch.dtype
) -> None:
    case = on_a_grid(shape, arity, dim, dtype)
    y, *of_both, second, of_second, last, of_last = range(8)  # behind delta, which has been rounded: of_both
    results = list(zip(simulated(case), exact(case), strict=True))
    for k, (one, other) in enumerate(results):
        assert one.shape == other.shape
        error, largest, eps = (one.double() - other).abs(), other.abs().max(), torch.finfo(dtype).eps
        if k == y:
            assert (error <= eps / 2 * other.abs() + 1e-6 * largest).all()
        elif k in of_both:
            assert error.max() <= eps * largest
        else:
            assert k in (second, of_second, last, of_last)
            assert error.max() <= 1e-6 * largest


def ordinary(dtype: torch.dtype, rows: int = 29) -> Case:
    """Numbers with all their bits, and hidden layers of ordinary size."""
    torch.manual_seed(0)
    weights = [torch.randn(64, 2), torch.randn(64, 64) / 8, torch.randn(1, 64) / 8]
    biases = [torch.randn(64) / 4, torch.randn(64) / 4, torch.randn(1)]
    return Case(torch.randn(rows, 6).to(dtype), weights, biases, torch.randn(rows, 3).to(dtype), 2, -1)


@needs_simulator
def test_ordinary_numbers_are_right_to_rounding() -> None:
    case = ordinary(torch.float32)
    for one, other in zip(simulated(case), exact(case), strict=True):
        assert (one.double() - other).abs().max() <= 1e-6 * other.abs().max()


@needs_simulator
@pytest.mark.parametrize(
    ("dtype", "of_value", "of_gradients"), [(torch.float16, 1e-3, 3e-2), (torch.bfloat16, 5e-3, 8e-2)], ids=str
)
def test_what_rounding_the_hidden_numbers_costs(dtype: torch.dtype, of_value: float, of_gradients: float) -> None:
    """Of a result's norm, for random networks: rounding turns neurons on and off, and a slope changes as a whole."""
    case = ordinary(dtype, rows=150)
    for k, (one, other) in enumerate(zip(simulated(case), exact(case), strict=True)):
        assert (one.double() - other).norm() <= (of_value if k == 0 else of_gradients) * other.norm()


@needs_simulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_nan_makes_its_own_unit_nan_and_no_other(dtype: torch.dtype) -> None:
    case = on_a_grid((6, 4), 2, -1, dtype)
    whole, *_ = simulated(case)
    case.x[3, 2] = float("nan")
    y, dx, *_ = simulated(case)
    place = torch.zeros(6, 2, dtype=torch.bool)
    place[3, 1] = True
    assert torch.equal(y.isnan(), place)
    assert torch.equal(y[~place], whole[~place])
    # slopes at a NaN are those of active neurons
    assert (dx.double() - exact(case)[1]).abs().max() <= torch.finfo(dtype).eps * 8 * dx.abs().max()


@needs_simulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_network_that_does_not_learn_costs_no_sums(dtype: torch.dtype) -> None:
    x, weights, biases, grad, arity, dim = on_a_grid((41, 6), 2, -1, dtype)
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
    counts = (1, 32, 33, 10**6, 34 * 10**6, 2**30)
    parts = [kernel._blocks("backward", torch.empty(units, device="meta")) for units in counts]
    assert parts == [1, 1, 2, 528, 528, 2**14]


# --- memory and threads ---


def cases(dtype: torch.dtype) -> Iterator[Case]:
    """Tiles that end within a block, rows and maps, several tiles to a block, numbers with all their bits."""
    torch.manual_seed(0)
    for shape, arity, dim in (((31, 10), 2, -1), ((2, 4, 9), 2, 1), ((2, 9, 5), 3, 1), ((9, 8), 8, -1)):
        yield on_a_grid(shape, arity, dim, dtype)
    yield ordinary(dtype)


def run(*case: object) -> list[Tensor]:
    return simulated(Case(*case))  # type: ignore[arg-type]


Faults = dict[str, dict[str, str]]
FAULTS: Faults = {
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


MMA_FAULTS: Faults = {
    "neurons in another order": {
        "h[block / 2][block % 2 * 2 + half] = packed": "h[block / 2][half * 2 + block % 2] = packed"
    },
    "what rounding took from V": {"pair_of<T>(rest_of<T>(low), rest_of<T>(high))": "0u"},
    "the second argument forgotten": {"k + 1 < arity ? bits_of(at[inner]) << 16 : 0u": "0u"},
    "units of the first warp": {"const int word = of.warp * 8 + of.group;": "const int word = of.group;"},
    "columns that change places": {"0x7632": "0x3276"},
    "terms that do not match": {"b[0] = at[0], b[1] = at[4];": "b[0] = at[4], b[1] = at[0];"},
    "no barrier before the sums": {"continue;\n        __syncthreads();": "continue;"},
    "no barrier before the next tile": {"sums.add<T>(stage, of);\n        __syncthreads();": "sums.add<T>(stage, of);"},
    "a slope at inactive neurons": {"active & 0x7fffu, active & 0x7fff0000u": "true, true"},
    "a gradient of units that do not exist": {"unit < units ? bits_of(g[unit]) * 0x10001u : 0u": "0x3f803f80u"},
    "a sum in the place of another": {"of.warp / 2 * (rows * 16)": "of.warp % 2 * (rows * 16)"},
}


def programs(kernels: Kernels, suffix: str, dtype: torch.dtype, instance: str | None, faults: Faults) -> type:
    names = [name for name in kernels.names if name.endswith((f"_{suffix}", "_reduce"))]
    orders = ("reversed", "shuffled:1", "warps")
    return memory_and_threads(kernels, instance, names, run, partial(cases, dtype), faults, orders, two_blocks)


TestInner = programs(kernel.INNER, "f32", torch.float32, None, FAULTS)
TestInnerMma = programs(kernel.INNER_MMA, "bf16", torch.bfloat16, "COMPANION_KERNELS(bf16, __nv_bfloat16)", MMA_FAULTS)


# --- as operators ---


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The simulator computes; the names of the kernels that it was given."""
    names_of_kernels: list[str] = []
    launch = Kernels.launch

    def recorded(self: Kernels, name: str, *arguments: Any, **options: Any) -> None:
        names_of_kernels.append(name)
        launch(self, name, *arguments, **options)

    monkeypatch.setattr(Kernels, "launch", recorded)
    return names_of_kernels


def by_the_operator(case: Case) -> list[Tensor]:
    layers = [each for layer in zip(case.weights, case.biases, strict=True) for each in layer]
    x, *parameters = (each.detach().requires_grad_() for each in (case.x, *layers))
    with companion.backend("simulator"):
        y = multi_argument(x, parameters[::2], parameters[1::2], case.arity, case.dim)
        return [y.detach(), *torch.autograd.grad(y, [x, *parameters], case.grad)]


@needs_simulator
@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, "inner"), (torch.bfloat16, "inner_mma")], ids=str)
def test_the_operator_launches_what_the_kernels_compute(dtype: torch.dtype, kind: str, launched: list[str]) -> None:
    suffix = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
    for shape, dim in (((5, 6), -1), ((2, 6, 3, 5), 1)):
        case = on_a_grid(shape, 2, dim, dtype)
        direct = simulated(case)
        launched.clear()
        assert all(torch.equal(a, b) for a, b in zip(by_the_operator(case), direct, strict=True))
        assert launched == [f"{kind}_forward_{suffix}", f"{kind}_backward_{suffix}", "inner_reduce"]


@needs_simulator
def test_images_stay_as_they_lie(launched: list[str]) -> None:
    case = on_a_grid((2, 6, 3, 5), 2, 1)
    last = case._replace(x=case.x.contiguous(memory_format=torch.channels_last))
    y, dx, *_ = by_the_operator(last)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert dx.is_contiguous(memory_format=torch.channels_last)
    for one, other in zip((y, dx), exact(case), strict=False):
        assert (one.double() - other).abs().max() <= 1e-6 * other.abs().max()
    assert len(launched) == 3


@needs_simulator
def test_a_frozen_network_adds_up_nothing(launched: list[str]) -> None:
    case = on_a_grid((5, 6), 2, -1)
    x = case.x.requires_grad_()
    with companion.backend("simulator"):
        multi_argument(x, case.weights, case.biases, 2).backward(case.grad)
    assert launched == ["inner_forward_f32", "inner_backward_f32"]


@needs_simulator
def test_what_no_kernel_knows_is_computed_by_torch(launched: list[str]) -> None:
    with companion.backend("simulator"):
        multi_argument(torch.ones(3, 4), [torch.ones(8, 2), torch.ones(1, 8)], [torch.ones(8), torch.ones(1)], 2)
        quadratic_form(torch.ones(3, 3), torch.ones(10), 3)
        empty = on_a_grid((0, 4), 2, -1)
        multi_argument(empty.x, empty.weights, empty.biases, 2)
        quadratic_form(empty.x, torch.ones(6), 2)
    assert launched == []


@needs_simulator
def test_the_quadratic_form_is_launched_too(launched: list[str]) -> None:
    x, c = torch.randn(3, 4).requires_grad_(), torch.randn(6).requires_grad_()
    with companion.backend("simulator"):
        quadratic_form(x, c, 2).sum().backward()
    dx, dc = torch.autograd.grad(quadratic_form(x, c, 2).sum(), [x, c])
    assert torch.allclose(x.grad, dx, atol=1e-5)  # type: ignore[arg-type]
    assert torch.allclose(c.grad, dc, atol=1e-5)  # type: ignore[arg-type]
    assert launched == ["quadratic_forward_f32", "quadratic_backward_f32", "quadratic_reduce"]


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_two_runs_give_the_same_bits(dtype: torch.dtype) -> None:
    x, weights, biases, grad, arity, dim = on_a_grid((3000, 66), 2, -1, dtype)
    there = [each.cuda() for each in (x, grad, *weights, *biases)]
    one, other = (
        kernel.backward(there[1], there[0], there[2:5], there[5:], arity, dim, learned=True, simulated=False)
        for _ in range(2)
    )
    assert torch.equal(one[0], other[0])
    assert all(torch.equal(a, b) for a, b in zip(one[1] or [], other[1] or [], strict=True))
