"""Modules: RAA and ARR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from companion.dnrt.held import computed_by, held, share_of
from companion.dnrt.means import follow, of_all_ranks
from companion.dnrt.op import Gate, check_gate, raa
from companion.operators import (
    OfClasses,
    as_float,
    as_int,
    cast,
    check_dtype,
    compute_dtype,
    refuse_script,
    without_autocast,
)

__all__ = ["ARR", "RAA"]


class RAA(nn.Module):
    r"""Response-adaptive activation: GELU with a threshold that depends on the whole vector.

    .. math:: \operatorname{RAA}(\mathbf x) = \mathbf x \odot \Phi(\mathbf x + \mathbf w^{\mathsf T}\mathbf x + b)

    Parameters
    ----------
    channels : int
        d, the elements of a vector, at least 1.
    gate : {"gelu", "silu", "relu"} or callable
        See :func:`companion.functional.raa`. With "relu" no gradient reaches ``weight`` and ``bias``: they never learn.
    dim : int
        Where the elements of a vector lie: −1 for tokens, 1 for images (N, C, H, W).
    inplace : bool
        Accepted where networks give it to every activation, and without effect.
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.

    Attributes
    ----------
    weight : Parameter
        :math:`\mathbf w`, (d,), zero at the start.
    bias : Parameter
        :math:`b`, (1,), zero at the start: a new module is exactly the activation that it replaces.

    Raises
    ------
    TypeError
        If the number of channels is no int, or the gate is neither a name nor callable.
    ValueError
        If there is fewer than one, or the gate's name is unknown.

    Shape
    -----
    Input of floating dtype with d elements along ``dim``, output the same. Chapter:
    *DNRT* (``book/mechanisms/dnrt``).

    References
    ----------
    Qiu et al. (2024), Dynamic Neural Response Tuning, Eq. 4.

    Examples
    --------
    >>> import torch, companion
    >>> layer = companion.RAA(16, dim=1)
    >>> x = torch.randn(8, 16, 5, 5)
    >>> torch.allclose(layer(x), torch.nn.functional.gelu(x), atol=1e-6)
    True
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        channels: int,
        gate: Gate = "gelu",
        dim: int = -1,
        *,
        inplace: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        channels = as_int("channels", channels, minimum=1)
        check_gate(gate)
        check_dtype(dtype)
        self.gate = gate
        self.dim = as_int("dim", dim)
        self.weight = nn.Parameter(torch.zeros(channels, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(1, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Make it again the activation that it replaces."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return raa(x, self.weight, self.bias, self.gate, self.dim)

    def extra_repr(self) -> str:
        gate = self.gate if isinstance(self.gate, str) else getattr(self.gate, "__name__", type(self.gate).__name__)
        return f"{self.weight.numel()}, gate={gate!r}, dim={self.dim}"


class ARR(OfClasses):
    r"""Aggregated response regularisation: how far responses lie from the moving mean of their class.

    .. math::
        \mathcal L = \frac1N \sum_i \frac{\lVert \mathbf x_i - \boldsymbol\mu_{k_i} \rVert_1}{d},\qquad
        \boldsymbol\mu_{k_i} \leftarrow (1-m)\,\boldsymbol\mu_{k_i} + m\,\mathbf x_i

    Every sample moves the mean of its class k, one after the other in the order of the batch. The loss pulls each
    response towards the mean of its class; the means themselves get no gradient.

    Parameters
    ----------
    num_classes : int
        K, at least 1.
    dim : int
        The length of a response, d, at least 1: a size, and no axis.
    momentum : float
        m, from 0 (a mean never moves) to 1 (it is the last sample).
    read : {"before", "after"}
        Which mean a sample is compared with: the one that it meets (the paper), or the one that it leaves (the
        published code). The second loss is (1 − m) times the first. The mean is a constant for the gradient, which is a
        sign, so both train alike, but for m = 1.
    init : {"first", "zero"}
        A class's mean starts as its first sample, whose own loss is 0, or at zero.

    Attributes
    ----------
    mean : Tensor
        (K, d) in float32, whatever the network's dtype; a buffer, saved with the model.
    seen : Tensor
        (K,) of bool: which classes have a mean; a buffer too.

    Raises
    ------
    TypeError
        If an argument or an input is of the wrong type; targets that are not whole numbers are one.
    ValueError
        If an argument or a shape does not fit, or a target is not one of 0 … K − 1. The means stay as they are then.
    RuntimeError
        If it is computed again during backward, in training mode.

    Shape
    -----
    Input (N, d) of floating dtype and targets (N,) of an integer dtype; output a 0-d tensor, in float32 for dtypes of
    16 bits.

    Notes
    -----
    In training mode the means move. In evaluation mode they stay, and a class without a mean costs nothing. A class
    that is absent from a batch keeps its mean. A response that is not finite moves no mean.

    It has no place inside of a checkpoint, which computes again during backward: the means would move twice, and the
    gradient would be that of another loss. Let what is checkpointed return its responses, and take their loss outside.

    Where `torch.distributed` is initialised, every rank follows the batches of all ranks, in the order of the ranks, so
    that all have the same means; all have to take the step. The batches may differ in size.

    torch's ``AveragedModel(..., use_buffers=True)`` cannot average booleans such as the buffer that knows which classes
    were seen; with ``multi_avg_fn=get_ema_multi_avg_fn(...)`` it can.

    On a GPU the targets are not read back: one outside the classes is an assertion of the device, as in
    :func:`torch.nn.functional.cross_entropy`. The memory is that of K · d numbers, and of N² for a batch where plain
    torch computes. A kernel takes two launches for the loss and the means, one for the gradient; it computes in
    training mode, in float32 and 16 bits, and leaves the rest to plain torch: evaluation, :meth:`distances`, float64,
    compilers and transforms.
    Chapter: *DNRT* (``book/mechanisms/dnrt``).

    References
    ----------
    Qiu et al. (2024), Dynamic Neural Response Tuning, Eqs. 5 and 6.

    Examples
    --------
    >>> import torch, companion
    >>> arr = companion.ARR(num_classes=2, dim=2)
    >>> x = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    >>> arr(x, torch.tensor([1, 1]))  # the first is the mean that the second is compared with: (0 + 2)/2
    tensor(1.)
    >>> arr.mean
    tensor([[0.0000, 0.0000],
            [0.1000, 0.3000]])
    """

    __prepare_scriptable__ = refuse_script

    points = "mean"
    mean: Tensor
    seen: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        momentum: float = 0.1,
        read: Literal["before", "after"] = "before",
        init: Literal["first", "zero"] = "first",
    ) -> None:
        super().__init__()
        classes, dim = as_int("num_classes", num_classes, minimum=1), as_int("dim", dim, minimum=1)
        self.momentum = as_float("momentum", momentum)
        if not 0 <= self.momentum <= 1:
            raise ValueError(f"momentum: got {momentum}, allowed is a number from 0 to 1")
        for name, value, allowed in (("read", read, ("before", "after")), ("init", init, ("first", "zero"))):
            if value not in allowed:
                raise ValueError(f"{name}: got {value!r}, allowed are {allowed[0]!r} and {allowed[1]!r}")
        self.read = read
        self.init = init
        self.register_buffer("mean", torch.zeros(classes, dim, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.bool))
        self.reset()

    def reset(self) -> None:
        """Forget all means."""
        self.mean.zero_()
        self.seen.fill_(self.init == "zero")

    def reset_parameters(self) -> None:
        """Forget all means, under the name that torch's modules have for it."""
        self.reset()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.loss(x, target)

    def loss(self, x: Tensor, target: Tensor, widths: Sequence[int] | None = None) -> Tensor:
        """The loss, of one layer or of several side by side; in training mode the means move.

        Parameters
        ----------
        x : Tensor
            (N, d).
        target : Tensor
            (N,), integers: the class of each example.
        widths : sequence of int, optional
            How many elements each layer has, d in all: the loss is the mean over the layers.

        Returns
        -------
        Tensor
            0-d.
        """
        self._check(x, target)
        if self.training and (who := computed_by(x, self.mean, self.seen)) != "torch":
            if who == "simulator":  # on a GPU the kernel looks at the targets
                self._check_classes(target)
            batch, targets, own = of_all_ranks(x.detach(), target.long())
            if len(batch):
                state = self.mean, self.seen, None if widths is None else share_of(tuple(widths), x.device)
                rule = self.momentum, self.init == "first", self.read == "after"
                return held(x, batch, targets, own, *state, *rule, who == "simulator")
        self._check_classes(target)
        distances = self._distances(x, target.long())
        if widths is None:
            return distances.mean()
        return torch.stack([layer.mean() for layer in torch.split(distances, list(widths), 1)]).mean()

    def distances(self, x: Tensor, target: Tensor) -> Tensor:
        """What the loss averages; in training mode the means move.

        Parameters
        ----------
        x : Tensor
            (N, d).
        target : Tensor
            (N,), integers: the class of each example.

        Returns
        -------
        Tensor
            (N, d): how far x is from μ, and 0 where the class has no mean.
        """
        self._check(x, target)
        self._check_classes(target)
        return self._distances(x, target.long())

    def _distances(self, x: Tensor, target: Tensor) -> Tensor:
        with without_autocast(x.device.type):
            x = cast(x, compute_dtype(x.dtype))
            mean = cast(self.mean, x.dtype)
            if not self.training:
                return torch.where(self.seen[target, None], x - mean[target], 0).abs()
            with torch.no_grad():
                batch, targets, own = of_all_ranks(x.detach(), target)
                followed = follow(batch, targets, mean, self.seen, self.momentum, self.init == "first")
                self.mean.copy_(followed.mean)
                self.seen.copy_(followed.seen)
                met = followed.before if self.read == "before" else torch.lerp(followed.before, batch, followed.share)
            return (x - met[own]).abs()

    def extra_repr(self) -> str:
        classes, dim = self.mean.shape
        return f"{classes}, {dim}, momentum={self.momentum}, read={self.read!r}, init={self.init!r}"
