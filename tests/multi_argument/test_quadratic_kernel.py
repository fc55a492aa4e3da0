"""quadratic.cu: its machine code, its values, its memory accesses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from companion import simulator
from companion.multi_argument import kernel
from companion.multi_argument.kernel import QUADRATIC
from tests.cases import together
from tests.cuda.machine_code import ARCHITECTURES, under_the_locked_compiler, usage
from tests.cuda.runs import assert_equal_bits, memory_and_threads

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_registers_leave_room_for_enough_threads(arch: int) -> None:
    under_the_locked_compiler()
    for name, (registers, stack, local) in usage(QUADRATIC.source, arch).items():
        assert (stack, local) == (0, 0), name
        assert registers <= 64, name


Case = tuple[Tensor, Tensor, int, Tensor]


def case_of(shape: tuple[int, ...], dim: int, dtype: torch.dtype = torch.float32) -> Case:
    """x, coefficients, dim and the gradient of the result."""
    result = list(shape)
    result[dim] //= 2
    return torch.randn(shape).to(dtype), torch.randn(6), dim, torch.randn(result).to(dtype)


def exact(x: Tensor, coefficients: Tensor, dim: int, grad: Tensor, magnitudes: bool = False) -> list[Tensor]:
    """The form and its gradients in float64, term by term; or the sums of their terms' magnitudes."""
    x, coefficients, grad = (each.double().abs() if magnitudes else each.double() for each in (x, coefficients, grad))
    leaves = [each.requires_grad_() for each in (x, coefficients)]
    first, second = x.unflatten(dim, (-1, 2)).unbind(dim if dim < 0 else dim + 1)
    terms = [first**2, second**2, first * second, first, second, torch.ones_like(first)]
    y = sum((c * term for c, term in zip(coefficients, terms, strict=True)), torch.zeros(()))
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def simulated(x: Tensor, coefficients: Tensor, dim: int, grad: Tensor) -> list[Tensor]:
    """The same by the kernels."""
    y = kernel.form_forward(x, coefficients, dim, simulated=True)
    return [y, *kernel.form_backward(grad, x, coefficients, dim, simulated=True)]


#: One unit, whole packs and not, of rows and of maps; several blocks.
SHAPES = [
    ((1, 2), -1),
    ((3, 14), -1),
    ((16, 8), -1),
    ((130, 16), -1),
    ((2, 4, 5, 3), 1),
    ((3, 6, 8), 1),
    ((70, 2, 16), 1),
]


@needs_simulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@together("shape, dim", SHAPES)
def test_values_and_gradients_are_right_to_rounding(
    shape: tuple[int, ...], dim: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "FORM_BLOCKS", 2)
    case = case_of(shape, dim, dtype)
    for one, other, terms in zip(simulated(*case), exact(*case), exact(*case, magnitudes=True), strict=True):
        assert one.shape == other.shape
        smallest = 2.0**-24 if one.dtype == torch.float16 else 0.0
        bound = torch.finfo(one.dtype).eps / 2 * other.abs() + 5e-7 * terms + smallest
        assert ((one.double() - other).abs() <= bound).all()


@needs_simulator
def test_tensors_may_begin_anywhere_in_memory() -> None:
    x, coefficients, dim, grad = case_of((16, 8), -1)
    moved = [torch.empty(each.numel() + 1)[1:].view(each.shape).copy_(each) for each in (x, grad)]
    assert_equal_bits(simulated, [(moved[0], coefficients, dim, moved[1])], [simulated(x, coefficients, dim, grad)])


def test_what_the_kernels_serve() -> None:
    assert kernel.serves_form(torch.zeros(2), 2)
    assert not kernel.serves_form(torch.zeros(3), 3)
    assert not kernel.serves_form(torch.zeros(2, dtype=torch.float64), 2)


NAMES = [name for name in QUADRATIC.names if name.endswith(("_bf16", "_reduce"))]


def cases() -> Iterator[Case]:
    """Packs and single units, rows and maps."""
    torch.manual_seed(0)
    for shape, dim in (((3, 14), -1), ((16, 8), -1), ((300, 16), -1), ((3, 6, 8), 1), ((2, 4, 5, 3), 1)):
        yield case_of(shape, dim, torch.bfloat16)


FAULTS: dict[str, dict[str, str]] = {
    "a unit too many": {"if (unit >= units) return;": "if (unit > units) return;"},
    "only the first tile": {"unit < units; unit += step": "unit < units; unit = units"},
    "pairs read as maps": {"if (width == 1 || inner > 1) return of;": "return of;"},
    "pairs written as maps": {"if (width > 1 && inner == 1) {": "if (width < 0) {"},
    "half of a square's slope": {"2.0f * c[1]": "c[1]"},
    "a product in the place of a square": {
        "sum[2] = fmaf(of_first, x_2, sum[2]);": "sum[2] = fmaf(of_first, x_1, sum[2]);"
    },
}


def in_one_block(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernel, "FORM_BLOCKS", 1)


TestMemoryAndThreads = memory_and_threads(
    QUADRATIC, "COMPANION_KERNELS(bf16, __nv_bfloat16)", NAMES, simulated, cases, FAULTS, set_up=in_one_block
)
