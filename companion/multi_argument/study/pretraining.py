r"""How the paper begins: the inner network first learns a random smooth map, to start from no common initialisation.

A map has a value, drawn uniformly between −1 and 1, for each cell of a grid over a square of the arguments, and a
Gaussian blurs it. At :math:`\mathbf a` it is the mean of the cells, weighted by how much of the Gaussian around
:math:`\mathbf a` lies in each, divided by how much lies in the square. A cell is a product of intervals, so these
weights are products of differences of :math:`\Phi`, and the blurred map is a smooth function, known exactly everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from companion.multi_argument.layers import MultiArgument
from companion.operators import as_int, check_floating

__all__ = ["PAPER", "PUBLISHED_CODE", "Grid", "RandomMap", "fit"]


class Grid(NamedTuple):
    """Of what a random map is made.

    Parameters
    ----------
    cells : int
        Along each argument.
    width : float
        Of a cell.
    sigma : float
        Of the Gaussian, in the units of the arguments.
    """

    cells: int
    width: float
    sigma: float


PAPER = Grid(cells=5, width=1.0, sigma=3.0)
"""Section IV-A: five by five unit squares, sigma of three units.

The blur is wider than the map, and leaves nearly a constant. Beside the standard deviation of the squares, √⅓, the
constant is 0.20 (root mean square over many maps), and what varies around it 0.06, see :meth:`RandomMap.contrast`. Of
the variance of that, a plane explains 97 % in half of the maps."""

PUBLISHED_CODE = Grid(cells=101, width=0.1, sigma=1 / 3)
"""What the paper's code draws: 101 by 101 points from −5 to 5, sigma a third. The contrast is 0.09, without a constant
(0.01). There the Gaussian is sampled at the points, and what it sees beyond the square may differ from ours."""


class RandomMap:
    """A random smooth function of the arguments: uniform noise on a grid around 0, blurred.

    Parameters
    ----------
    arity : int
        How many arguments it has, at least 1.
    seed : int
        Of the noise.
    grid : Grid
        `PAPER` or `PUBLISHED_CODE`, or another one.

    Raises
    ------
    TypeError
        If a number is not an int, or arguments have no floating dtype.
    ValueError
        If the arity is less than 1, or arguments have another shape than (..., arity).

    References
    ----------
    Kim, Orhan, Yoon, Pitkow (2022), Section IV-A.1.

    Examples
    --------
    >>> surface = RandomMap(2, seed=0, grid=PUBLISHED_CODE)
    >>> surface(torch.zeros(7, 2)).shape
    torch.Size([7])
    """

    def __init__(self, arity: int = 2, seed: int = 0, grid: Grid = PUBLISHED_CODE) -> None:
        arity = as_int("arity", arity, minimum=1)
        generator = torch.Generator().manual_seed(as_int("seed", seed))
        self.grid = grid
        self.noise = 2 * torch.rand([grid.cells] * arity, dtype=torch.float64, generator=generator) - 1

    @property
    def radius(self) -> float:
        """Half a side of the square on which the noise is."""
        return self.grid.cells * self.grid.width / 2

    def __call__(self, arguments: Tensor) -> Tensor:
        """Return its values, (...), at arguments (..., arity)."""
        check_floating("arguments", arguments)
        if arguments.ndim == 0 or arguments.shape[-1] != self.noise.ndim:
            raise ValueError(f"arguments: got shape {tuple(arguments.shape)}, allowed is (..., {self.noise.ndim})")
        points = arguments.reshape(-1, self.noise.ndim).double()
        first, *others = points.unbind(1)
        # Σ_k share_k(a_1) noise_k…, then the same along the next argument
        values: Tensor = torch.tensordot(self._shares(first), self.noise.to(points.device), 1)
        for argument in others:
            values = torch.einsum("pk,pk...->p...", self._shares(argument), values)
        return values.reshape(arguments.shape[:-1]).to(arguments.dtype)

    def _shares(self, argument: Tensor) -> Tensor:
        """How much of the Gaussian around an argument lies in each cell, of what lies in all: (points, cells)."""
        cells, width, sigma = self.grid
        edges = torch.arange(cells + 1, device=argument.device) * width - self.radius
        below = torch.special.ndtr((edges - argument[:, None]) / sigma)
        share: Tensor = below.diff(dim=1)
        return share / share.sum(1, keepdim=True)

    def contrast(self, points: int = 41) -> float:
        """Return its standard deviation on a grid of points over the square, by that of the noise, √⅓.

        Examples
        --------
        >>> paper, hardly_blurred = (RandomMap(2, 0, grid).contrast() for grid in (PAPER, Grid(41, 1.0, 1e-3)))
        >>> paper < 0.2, 0.9 < hardly_blurred < 1.1
        (True, True)
        """
        axis = torch.linspace(-self.radius, self.radius, points, dtype=torch.float64)
        grid = torch.cartesian_prod(*[axis] * self.noise.ndim).view(-1, self.noise.ndim)
        return self(grid).std(correction=0).item() * math.sqrt(3)


def fit(
    network: MultiArgument,
    target: Callable[[Tensor], Tensor],
    radius: float,
    *,
    steps: int = 2000,
    batch: int = 512,
    lr: float = 1e-3,
    seed: int = 0,
) -> float:
    """Let an inner network learn a function on a square, or a cube, around 0.

    Parameters
    ----------
    network : MultiArgument
        It is changed in place. All its parameters learn, by Adam from the mean squared error.
    target : callable
        Arguments (N, n) → values (N,), such as a :class:`RandomMap`.
    radius : float
        Half a side of the square; arguments are drawn from it uniformly.
    steps, batch : int
        How many steps, of how many arguments each. The paper does not say.
    lr : float
        The rate of learning, constant.
    seed : int
        Of the arguments.

    Returns
    -------
    float
        The share of the target's variance that the network explains, R², at 4096 arguments that it was not trained on.

    Raises
    ------
    ValueError
        If a parameter of the network is frozen.

    References
    ----------
    Kim, Orhan, Yoon, Pitkow (2022), Section IV-A.1.

    Examples
    --------
    >>> network = MultiArgument(init="linear")
    >>> fit(network, lambda a: a[:, 0], radius=1.0, steps=60, lr=1e-2) > 0.5
    True
    """
    frozen = [name for name, p in network.named_parameters() if not p.requires_grad]
    if frozen:
        raise ValueError(
            f"network: got frozen parameters ({', '.join(frozen)}), allowed is one that may learn; see requires_grad_"
        )
    like = network.weights[0]
    generator = torch.Generator(like.device).manual_seed(as_int("seed", seed))

    def drawn(count: int) -> Tensor:
        uniform = torch.rand(count, network.arity, generator=generator, device=like.device, dtype=like.dtype)
        return radius * (2 * uniform - 1)

    optimizer = torch.optim.Adam(network.parameters(), lr)
    for _ in range(as_int("steps", steps, minimum=0)):
        a = drawn(batch)
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(network.at(a), target(a)))
        optimizer.step()
    with torch.no_grad():
        a = drawn(4096)
        expected = target(a)
        rest = expected - network.at(a)
    return 1 - (rest.square().mean() / expected.var(correction=0)).item()
