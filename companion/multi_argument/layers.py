"""Modules: the inner network that all units share, and the quadratic form in its place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from companion.multi_argument.op import multi_argument, quadratic_form
from companion.multi_argument.quadratic import count_of, fit_quadratic
from companion.operators import as_float, as_int, check_dtype, check_floating, refuse_script

__all__ = ["MultiArgument", "Quadratic"]

_INITS = ("xavier", "linear")


class MultiArgument(nn.Module):
    r"""A learned activation of several arguments: one small ReLU network makes one number of the arguments of a unit.

    .. math::
        y_i = \mathbf w\,\max(0, W_2 \max(0, W_1 \mathbf a_i + \mathbf b_1) + \mathbf b_2) + b,\qquad
        \mathbf a_i = (x_{ni}, \dots, x_{ni + n - 1})

    It is meant to be one instance in all places of a network: all units of all layers share it.

    Parameters
    ----------
    arity : int
        n, the arguments of a unit, at least 1. The layer before gives n outputs for each unit.
    hidden : int
        Width of the inner network's hidden layers, at least 1. The paper has 64.
    depth : int
        Number of these layers, at least 1. The paper has two.
    dim : int
        Where the units lie: −1 for tokens, 1 for images (N, C, H, W).
    init : {"xavier", "linear"}
        Xavier's uniform weights, and biases 0: then :math:`f(t\,\mathbf a) = t f(\mathbf a)` for t > 0. Or as
        ``torch.nn.Linear`` begins, with random biases too. The paper's random map is in
        :mod:`companion.multi_argument.study.pretraining`.
    device, dtype
        Of the parameters.

    Attributes
    ----------
    weights, biases : ParameterList
        As those of ``torch.nn.Linear``: (h, n), (h, h), …, (1, h) and (h,), (h,), …, (1,).

    Raises
    ------
    TypeError
        If a number is not an int.
    ValueError
        If a number is too small, `init` is unknown, or the arity does not divide the size of the input along ``dim``.

    Shape
    -----
    Input of floating dtype with n · units elements along ``dim``, output with one for each unit. So it does not stand
    where an activation of one argument stood: :func:`companion.to_units` widens the layers before it, and
    :func:`companion.replace_activations` refuses it but for an arity of 1.
    Chapter: *Multi-argument neurons* (``book/mechanisms/multi-argument``).

    References
    ----------
    Kim, Orhan, Yoon, Pitkow (2022), Two-argument activation functions learn soft XOR operations like cortical neurons,
    Section III.

    Examples
    --------
    >>> import torch, companion
    >>> from torch import nn
    >>> shared = companion.MultiArgument()
    >>> network = nn.Sequential(nn.Linear(10, 2 * 32), shared, nn.Linear(32, 2 * 16), shared, nn.Linear(16, 3))
    >>> network(torch.randn(5, 10)).shape
    torch.Size([5, 3])
    >>> sum(p.numel() for p in shared.parameters())
    4417
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        arity: int = 2,
        hidden: int = 64,
        depth: int = 2,
        dim: int = -1,
        init: str = "xavier",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.arity = as_int("arity", arity, minimum=1)
        hidden, depth = as_int("hidden", hidden, minimum=1), as_int("depth", depth, minimum=1)
        self.dim = as_int("dim", dim)
        if init not in _INITS:
            raise ValueError(f"init: got {init!r}, allowed are {', '.join(map(repr, _INITS))}")
        check_dtype(dtype)
        self.init = init
        widths = [self.arity, *[hidden] * depth, 1]
        shapes = [*zip(widths[1:], widths[:-1], strict=True)]
        self.weights = nn.ParameterList(torch.empty(shape, device=device, dtype=dtype) for shape in shapes)
        self.biases = nn.ParameterList(torch.empty(width, device=device, dtype=dtype) for width in widths[1:])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if self.init == "xavier":
                nn.init.xavier_uniform_(weight)
                nn.init.zeros_(bias)
            else:
                bound = 1 / math.sqrt(weight.shape[1])
                nn.init.uniform_(weight, -bound, bound)
                nn.init.uniform_(bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return multi_argument(x, self.weights, self.biases, self.arity, self.dim)

    def at(self, arguments: Tensor) -> Tensor:
        """Return its values (...) at arguments (..., n), whatever its ``dim`` is."""
        return multi_argument(arguments, self.weights, self.biases, self.arity).squeeze(-1)

    def freeze(self) -> MultiArgument:
        """Let the activation stay as it is, whatever trains: no parameter asks for a gradient.

        ``requires_grad_()`` undoes it.

        Returns
        -------
        MultiArgument
            Itself.

        Examples
        --------
        >>> import companion
        >>> any(p.requires_grad for p in companion.MultiArgument().freeze().parameters())
        False
        """
        return self.requires_grad_(False)

    def surface(self, *axes: Tensor) -> Tensor:
        """Return what it computes on a grid: the picture of an activation.

        Parameters
        ----------
        *axes : Tensor
            For each argument the values that it takes, (n₁,), (n₂,), …

        Returns
        -------
        Tensor
            (n₁, n₂, …), without a graph.

        Examples
        --------
        >>> import torch, companion
        >>> companion.MultiArgument().surface(torch.linspace(-3, 3, 5), torch.linspace(-2, 2, 4)).shape
        torch.Size([5, 4])
        """
        return _surface(self, axes)

    def quadratic(self, samples: Tensor) -> tuple[Quadratic, float]:
        """Return the quadratic form that is nearest to it by least squares, and the share of the variance it explains.

        Parameters
        ----------
        samples : Tensor
            Arguments (N, n): where it is to be near, such as those that the network meets.

        Returns
        -------
        form : Quadratic
            With the ``dim``, the device and the dtype of this module.
        explained : float
            R²: 1 for a quadratic. NaN for a constant.

        Raises
        ------
        TypeError
            If the samples have no floating dtype.
        ValueError
            If their shape is another one, or there are fewer than coefficients.

        References
        ----------
        Kim, Orhan, Yoon, Pitkow (2022), Section IV-C.

        Examples
        --------
        >>> import torch, companion
        >>> form, explained = companion.MultiArgument().quadratic(torch.randn(1000, 2))
        >>> form.coefficients.shape, 0 <= explained <= 1
        (torch.Size([6]), True)
        """
        check_floating("samples", samples)
        if samples.ndim != 2 or samples.shape[1] != self.arity:
            raise ValueError(f"samples: got shape {tuple(samples.shape)}, allowed is (N, {self.arity})")
        with torch.no_grad():
            values = self.at(samples)
        coefficients, explained = fit_quadratic(samples, values)
        like = self.weights[0]
        return Quadratic(self.arity, self.dim, coefficients.tolist(), device=like.device, dtype=like.dtype), explained

    def __repr__(self) -> str:
        """Return its settings, without the parameters that a list of them would print."""
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        hidden, depth = len(self.biases[0]), len(self.biases) - 1
        return f"arity={self.arity}, hidden={hidden}, depth={depth}, dim={self.dim}, init={self.init!r}"


class Quadratic(nn.Module):
    r"""A quadratic activation of several arguments, its coefficients shared by all units and learned.

    .. math:: f(x_1, x_2) = c_1 x_1^2 + c_2 x_2^2 + c_3 x_1 x_2 + c_4 x_1 + c_5 x_2 + c_6

    Parameters
    ----------
    arity : int
        n, the arguments of a unit, at least 1.
    dim : int
        Where the units lie: −1 for tokens, 1 for images (N, C, H, W).
    coefficients : sequence of float, optional
        Where they begin, (n + 1)(n + 2)/2 of them, in the order of :func:`companion.functional.quadratic_form`. By
        default the sum of all products of two different arguments; for two, the soft XOR :math:`x_1 x_2`.
    device, dtype
        Of the coefficients.

    Attributes
    ----------
    coefficients : Parameter
        ((n + 1)(n + 2)/2,).

    Raises
    ------
    TypeError
        If a number is not an int, or a coefficient not a number.
    ValueError
        If the arity is less than 1 or there is another number of coefficients.

    Shape
    -----
    As those of MultiArgument, with arguments in any number of units.

    References
    ----------
    Kim, Orhan, Yoon, Pitkow (2022), Two-argument activation functions learn soft XOR operations like cortical neurons,
    Section IV-C.

    Examples
    --------
    >>> import torch, companion
    >>> companion.Quadratic()(torch.tensor([[2.0, 3.0, -1.0, 4.0]])).detach()
    tensor([[ 6., -4.]])
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        arity: int = 2,
        dim: int = -1,
        coefficients: Sequence[float] | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.arity, self.dim = as_int("arity", arity, minimum=1), as_int("dim", dim)
        check_dtype(dtype)
        count = count_of(self.arity)
        products = count - 2 * self.arity - 1
        if coefficients is None:
            coefficients = [*[0.0] * self.arity, *[1.0] * products, *[0.0] * (self.arity + 1)]
        numbers = [as_float("coefficients", c) for c in coefficients]
        if len(numbers) != count:
            raise ValueError(f"coefficients: got {len(numbers)}, allowed are {count} for arity {self.arity}")
        self._start = tuple(numbers)
        self.coefficients = nn.Parameter(torch.empty(count, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin again with the coefficients named at construction."""
        with torch.no_grad():
            self.coefficients.copy_(torch.tensor(self._start, dtype=torch.float64).to(self.coefficients.dtype))

    def forward(self, x: Tensor) -> Tensor:
        return quadratic_form(x, self.coefficients, self.arity, self.dim)

    def at(self, arguments: Tensor) -> Tensor:
        """Return its values (...) at arguments (..., n), whatever its ``dim`` is."""
        return quadratic_form(arguments, self.coefficients, self.arity).squeeze(-1)

    def surface(self, *axes: Tensor) -> Tensor:
        """Return what it computes on a grid, see :meth:`companion.MultiArgument.surface`."""
        return _surface(self, axes)

    def extra_repr(self) -> str:
        return f"arity={self.arity}, dim={self.dim}"


def _surface(layer: MultiArgument | Quadratic, axes: Sequence[Tensor]) -> Tensor:
    if len(axes) != layer.arity:
        raise ValueError(f"axes: got {len(axes)}, allowed is one for each of {layer.arity} arguments")
    with torch.no_grad():
        return layer.at(torch.stack(torch.meshgrid(*axes, indexing="ij"), -1))
