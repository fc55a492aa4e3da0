"""Parameters and FLOPs: closed forms for one layer, and counted on a whole network.

The convention is that of Metta et al. (2024), section 4. Multiplications and additions both count, so a dense layer
with n outputs and m inputs costs 2mn. The first product of a sum needs no addition, but the sum starts from something:
the two cancel, and an ordinary bias is one more addition per output. Positions in the padding count like others.
Activation functions are free. A layer of dendrite-activated connections adds its biases once per pair of channels and
pixel of the map that it is applied to; the sums are cached for all positions of the kernel.

What the paper leaves open: batch normalisation costs two per element, a scale and a shift, with or without β, as it
does when its statistics are fixed. Sums, differences, products and quotients of two tensors, such as skip connections,
cost one per element. Pooling, softmax and other normalisations are free, and so is what only chooses, compares or moves
numbers, a mask among them, or scales all of a tensor by one number. Of anything else nobody has said what it costs:
`Count.unknown` names it.

Functions and modules say what they cost by `declare`; a mechanism does so in its module ``costs``. torch's
``register_flop_formula`` is for operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from companion import activations, rooms
from companion.baselines import Swish
from companion.rehearsal import Example, call, example_of, rehearse

__all__ = ["Count", "LayerCount", "conv2d_flops", "count", "declare", "free", "linear_flops"]


# --- closed forms ------------------------------------------------------------------------------------------------


def linear_flops(in_features: int, out_features: int, bias: bool = True) -> int:
    """Return the FLOPs of a dense layer for one input: 2mn, and n for a bias.

    Parameters
    ----------
    in_features : int
        How many inputs the layer has: m.
    out_features : int
        How many outputs: n.
    bias : bool
        Whether each output has one.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> linear_flops(64, 10)
    1290
    """
    return 2 * in_features * out_features + out_features * bias


def conv2d_flops(
    in_channels: int,
    out_channels: int,
    kernel: tuple[int, int],
    image: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    bias: bool = True,
) -> int:
    """Return the FLOPs of a convolution for one image: 2 n (m/groups) kh kw st, and n st for a bias.

    Parameters
    ----------
    in_channels : int
        How many channels come in: m.
    out_channels : int
        How many go out: n.
    kernel : pair of int
        (kh, kw).
    image : pair of int
        Height and width of the input; the output has s × t pixels.
    stride, padding, dilation : pair of int
        As in ``torch.nn.Conv2d``.
    groups : int
        Divides m and n.
    bias : bool
        Whether each output has one.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> conv2d_flops(16, 32, (3, 3), (32, 32), stride=(2, 2), padding=(1, 1), bias=False)
    2359296
    """
    # s = ⌊(H + 2p − d(k − 1) − 1) / stride⌋ + 1, and t likewise
    pixels = prod((image[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    return out_channels * pixels * (2 * in_channels // groups * prod(kernel) + bias)


# --- what somebody says of a function or of a module -------------------------------------------------------------

Formula = TypeVar("Formula", bound=Callable[..., int])


class _Cost(NamedTuple):
    formula: Callable[..., int]
    fake: Callable[..., Any] | None


_COSTS: dict[Any, _Cost] = {}


def declare(*targets: Any, fake: Callable[..., Any] | None = None) -> Callable[[Formula], Formula]:
    """Declare what a call of a function, or of the modules of a class, costs; what is inside it is then not counted.

    Parameters
    ----------
    *targets : callable or class
        Functions that can be overridden, as PyTorch's own and those of :mod:`companion.functional` can; or classes of
        modules, for which it holds of their subclasses as well.
    fake : callable, optional
        For functions, what gives a tensor like the result of a call; without it the function itself runs, on tensors
        that hold no numbers.

    Returns
    -------
    callable
        A decorator of the formula. That takes the arguments of the call, after the module if it is one, and returns the
        FLOPs.

    Examples
    --------
    >>> class Doubled(nn.Linear):
    ...     pass
    >>> @declare(Doubled)
    ... def doubled(module, x):
    ...     return 2 * linear_flops(module.in_features, module.out_features)
    >>> count(Doubled(4, 3), (4,)).flops
    54
    """

    def decorate(formula: Formula) -> Formula:
        _COSTS.update(dict.fromkeys(targets, _Cost(formula, fake)))
        return formula

    return decorate


def free(*targets: Any) -> None:
    """Declare that functions, or the modules of some classes, cost nothing, as activation functions do.

    Parameters
    ----------
    *targets : callable or class
        As for `declare`.
    """
    declare(*targets)(lambda *_, **__: 0)


free(*activations.MODULES, Swish)


# --- a whole network ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerCount:
    """What one module holds and costs itself, without the modules inside it.

    Parameters
    ----------
    name : str
        Its name in the network; empty for the network itself.
    kind : str
        Its class.
    parameters : int
        A parameter that several modules share is counted with the first.
    flops : int
        For one example.
    """

    name: str
    kind: str
    parameters: int
    flops: int


@dataclass(frozen=True)
class Count:
    """Parameters and FLOPs of a network.

    Parameters
    ----------
    parameters : int
        All of them, trained or not.
    flops : int
        For one example, forwards.
    layers : tuple of LayerCount
        The modules that hold parameters or cost something, in the order of the network. They add up to the totals.
    unknown : tuple of (str, int)
        Operators of which nobody has said what they cost, and how often each was called. They are not in the FLOPs.
    operators : tuple of (str, int)
        What was counted, and its FLOPs: operators of torch, and functions and modules that declare their cost. See
        `by_operator`.
    """

    parameters: int
    flops: int
    layers: tuple[LayerCount, ...]
    unknown: tuple[tuple[str, int], ...] = ()
    operators: tuple[tuple[str, int], ...] = ()

    def by_operator(self) -> dict[str, int]:
        """Return the FLOPs of each operator, the dearest first. They add up to the total.

        Examples
        --------
        >>> count(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (3, 8, 8)).by_operator()
        {'aten.convolution': 7920, 'aten.native_batch_norm': 288}
        """
        return dict(sorted(self.operators, key=lambda row: -row[1]))

    def __str__(self) -> str:
        """Return a table, a line per layer and one for the total, and what is not counted below it."""
        lines = [("layer", "kind", "parameters", "FLOPs")]
        lines += [(row.name or "(itself)", row.kind, f"{row.parameters:,}", f"{row.flops:,}") for row in self.layers]
        lines += [("total", "", f"{self.parameters:,}", f"{self.flops:,}")]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            f"{name:<{widths[0]}}  {kind:<{widths[1]}}  {parameters:>{widths[2]}}  {flops:>{widths[3]}}"
            for name, kind, parameters, flops in lines
        ]
        return "\n".join([*table, *(f"not counted: {operator}, called {n} times" for operator, n in self.unknown)])


def count(model: nn.Module, example: Example) -> Count:
    """Count the parameters and the FLOPs of a network, by running it once.

    What runs is a copy in evaluation mode, on tensors that have shapes but hold no numbers. Only if that fails, as when
    the network decides by the values of tensors, does it run on numbers. The network itself is not touched. Functional
    calls count like modules, with whatever module makes them. What is declared, as `DACLinear`, `DACConv2d` and their
    functions are, counts as one layer, however it is computed. The convention is at the head of the module
    :mod:`companion.counting`; torch's ``FlopCounterMode`` does the counting, with formulas that add what it leaves
    out: biases, batch normalisation and elementwise arithmetic.

    Parameters
    ----------
    model : nn.Module
        Any network, or ``torch.compile`` of it, which counts like the network.
    example : sequence of int, Tensor, tuple or mapping
        The shape of one example, such as (C, H, W), without the batch, if the network takes one floating tensor; or a
        tensor, of whatever dtype, such as tokens; a tuple of all arguments; or a dictionary of arguments by name. What
        is counted is the call with just these, for all examples in them.

    Returns
    -------
    Count
        Its ``str`` is a table.

    Raises
    ------
    TypeError
        If the example is none of what is allowed.
    ValueError
        If the network cannot take the example; the error names the module.

    Notes
    -----
    Hooks are part of what a network computes: they run, and what they compute is counted. They see evaluation mode, no
    gradients, and tensors that hold no numbers, or zeros. A hook that keeps something, such as a mean, should do so in
    training alone.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, section 4. Chapter:
    *DAC* (``book/mechanisms/dac``).

    Examples
    --------
    >>> import torch, companion
    >>> from torch import nn
    >>> print(companion.count(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (4,)))
    layer  kind    parameters  FLOPs
    0      Linear          15     27
    2      Linear           8     14
    total                  23     41
    >>> companion.count(nn.Embedding(10, 4), torch.tensor([[1, 2, 3]])).parameters
    40
    """
    rooms.modules("costs")
    model = getattr(model, "_orig_mod", model)
    ledger = rehearse(model, lambda replica: _run(replica, example))
    seen: set[int] = set()
    layers = []
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, own))
        parameters = sum(p.numel() for p in own)
        # what ran is a copy: that of a compiled GraphModule is the GraphModule itself
        flops = ledger.flops[name] or ledger.flops[name.replace("_orig_mod.", "")]
        if parameters or flops:
            layers.append(LayerCount(name, type(module).__name__, parameters, flops))
    return Count(
        sum(row.parameters for row in layers),
        sum(row.flops for row in layers),
        tuple(layers),
        tuple(sorted(ledger.unknown.items())),
        tuple(sorted((operator, flops) for operator, flops in ledger.operators.items() if flops)),
    )


@dataclass
class _Ledger:
    """What is booked while a network runs: FLOPs by module, and the calls of operators of which nothing is known."""

    running: list[str] = field(default_factory=lambda: [""])
    flops: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    #: How many calls around this one have said what they cost with all that is in them.
    settled: int = 0

    def book(self, what: Any, flops: int) -> None:
        """Add to the module that is running, and to what it calls."""
        self.flops[self.running[-1]] += flops
        self.operators[getattr(what, "__name__", None) or str(what)] += flops

    def enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A module begins."""
        self.running.append(name)
        formula = _declared_for(module)
        if self.settled:
            self.settled += 1
        elif formula is not None:
            self.settled = 1
            self.book(type(module), formula(module, *args, **kwargs))

    def leave(self) -> None:
        """It ends."""
        self.running.pop()
        self.settled -= self.settled > 0


def _declared_for(module: nn.Module) -> Callable[..., int] | None:
    """What somebody declared for the class of a module or for one that it inherits from."""
    return next((_COSTS[kind].formula for kind in type(module).__mro__ if kind in _COSTS), None)


class _Calls(TorchFunctionMode):
    """Books the calls of functions of which it is declared what they cost, and nothing of what is in them.

    Parameters
    ----------
    ledger : _Ledger
        Where.
    empty : bool
        Whether tensors hold no numbers, so that results need none.
    """

    def __init__(self, ledger: _Ledger, empty: bool) -> None:
        super().__init__()
        self.ledger, self.empty = ledger, empty

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take a call of a function."""
        kwargs = kwargs or {}
        cost = _COSTS.get(func)
        if cost is None or self.ledger.settled:
            return func(*args, **kwargs)
        self.ledger.book(func, cost.formula(*args, **kwargs))
        self.ledger.settled += 1
        try:
            return (cost.fake if cost.fake and self.empty else func)(*args, **kwargs)
        finally:
            self.ledger.settled -= 1


class _Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operators that have no formula and are not free by the convention."""

    def __init__(self, ledger: _Ledger, formulas: Collection[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger, self.formulas = ledger, formulas

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take a call of an operator."""
        out = func(*args, **(kwargs or {}))
        if not self.ledger.settled and func._overloadpacket not in self.formulas and not _is_free(func, args, out):
            self.ledger.unknown[str(func._overloadpacket)] += 1
        return out


def _run(model: nn.Module, example: Example) -> _Ledger:
    """What a network costs; it keeps the hooks that it gets here."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils.flop_counter import FlopCounterMode, flop_registry

    ledger = _Ledger()

    def booked(operator: Any, formula: Callable[..., int]) -> Callable[..., int]:
        """The formula, with the result booked on the module that is running."""

        def counted(*args: Any, **kwargs: Any) -> int:
            if ledger.settled:
                return 0
            flops = formula(*args, **kwargs)
            ledger.book(str(operator), flops)
            return flops

        # FlopCounterMode gives tensors to such a formula, not their shapes
        counted._get_raw = True  # type: ignore[attr-defined]
        return counted

    formulas = {operator: booked(operator, formula) for operator, formula in {**flop_registry, **_formulas()}.items()}
    for name, module in model.named_modules():
        module.register_forward_pre_hook(
            lambda module, args, kwargs, name=name: ledger.enter(name, module, args, kwargs), with_kwargs=True
        )
        module.register_forward_hook(lambda *_: ledger.leave(), always_call=True)
    arguments = example_of(model, example)
    empty = any(isinstance(x, FakeTensor) for x in tree_leaves(arguments))
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with counter, _Witness(ledger, formulas), _Calls(ledger, empty):
        call(model, arguments, example)
    return ledger


# --- what is free ------------------------------------------------------------------------------------------------

# Pooling; softmax, activation functions with parameters of their own, dropout; other normalisations; new tensors; what
# only chooses or moves numbers.
_NAMES = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d amax amin avg_pool2d avg_pool3d
    max max_pool2d_with_indices max_pool3d_with_indices mean min

    _log_softmax _prelu_kernel _safe_softmax _softmax glu logsumexp native_dropout

    _fused_rms_norm linalg_vector_norm native_group_norm native_layer_norm std std_mean var var_mean

    empty_like full_like new_empty new_full new_ones new_zeros ones_like zero_ zeros_like

    _to_copy _unsafe_index _unsafe_view as_strided_ cat clamp clamp_ clone constant_pad_nd copy copy_ embedding fill_
    flip gather im2col index index_put index_put_ index_select masked_fill masked_fill_ maximum minimum pixel_shuffle
    pixel_unshuffle reflection_pad1d reflection_pad2d repeat replication_pad2d roll scatter select_scatter slice_scatter
    sort split_with_sizes_copy stack topk transpose_ tril triu unsafe_chunk unsafe_split
    upsample_nearest1d upsample_nearest2d where
"""
#: Functions of one tensor, element by element, are free as well, and so is what gives a view, or gives or takes no
#: floating numbers.
FREE = frozenset(_NAMES.split())


def _is_free(func: Any, args: Any, out: Any) -> bool:
    """Whether a call of an operator costs nothing by the convention."""
    given, results = _floating(args), _floating(out)
    if not given or not results:
        return True
    is_view = any(result.alias_info and not result.alias_info.is_write for result in func._schema.returns)
    of_one_tensor = torch.Tag.pointwise in func.tags and len(given) == 1
    return is_view or of_one_tensor or func._overloadpacket.__name__ in FREE


def _floating(values: Any) -> list[Tensor]:
    """The floating tensors in what an operator takes or gives."""
    return [x for x in tree_leaves(values) if isinstance(x, Tensor) and x.is_floating_point()]


# --- what FlopCounterMode leaves out -----------------------------------------------------------------------------


def _formulas() -> dict[Any, Callable[..., int]]:
    """What FlopCounterMode leaves out, by the operator."""
    from torch.utils.flop_counter import flop_registry

    aten = torch.ops.aten

    def with_bias(operator: Any, bias: int) -> Callable[..., int]:
        def formula(*args: Any, out_val: Tensor, **kwargs: Any) -> int:
            products: int = flop_registry[operator](*args, out_val=out_val, **kwargs)
            return products + (0 if args[bias] is None else out_val.numel())

        return formula

    def scale_and_shift(x: Tensor, *args: Any, out_val: Any, **kwargs: Any) -> int:
        return 2 * x.numel()

    def elementwise(x: Any, y: Any, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
        # a mask only chooses; a number may come as a tensor with one element
        return out_val.numel() if all(_has_numbers(operand, out_val) for operand in (x, y)) else 0

    def lstm(
        x: Tensor, inputs: Tensor, states: Tensor, b1: Any, b2: Any, h: Any, c: Any, *args: Any, out_val: Any, **__: Any
    ) -> int:
        # mode, hidden size, layers, biases are the third to the sixth of the rest; one layer, in one direction
        steps, hidden, biases = x.numel() // inputs.shape[1], args[3], 2 if args[5] else 0
        # for each of the four gates two products and their sum; then i g + f c, and o tanh(c)
        flops: int = steps * (2 * (inputs.numel() + states.numel()) + hidden * (4 * biases + 4 + 4))
        return flops

    def _has_numbers(operand: Any, out: Tensor) -> bool:
        floating = isinstance(operand, Tensor) and (operand.is_floating_point() or operand.is_complex())
        return floating and (operand.numel() > 1 or out.numel() == 1)

    return {
        aten.addmm: with_bias(aten.addmm, 0),
        aten.baddbmm: with_bias(aten.baddbmm, 0),
        aten.convolution: with_bias(aten.convolution, 2),
        # older versions of torch know the formula, but not that it is this operator's too
        aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
        **{
            getattr(aten, name): scale_and_shift
            for name in (
                "native_batch_norm",
                "_native_batch_norm_legit",
                "_native_batch_norm_legit_no_training",
                "_batch_norm_with_update",
                "_batch_norm_no_update",
                "cudnn_batch_norm",
            )
        },
        **{getattr(aten, name + end): elementwise for name in ("add", "sub", "mul", "div") for end in ("", "_")},
        aten.rsub: elementwise,
        aten.mkldnn_rnn_layer: lstm,
    }
