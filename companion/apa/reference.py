r"""APA and AGLU in plain torch: the value, all first and all second derivatives, stable everywhere.

With :math:`a = \kappa z`, :math:`E = e^{-a}`, :math:`t = \lambda E`, :math:`s = 1/(1+t)`:

.. math::
    \eta = e^{-L},\quad L = \ln(1+t)/\lambda,\quad q = -\partial L/\partial a = E s,\quad
    D = -\partial L/\partial\lambda = (L - q)/\lambda .

Every derivative is :math:`\eta` times a polynomial in :math:`z, \kappa, q, s, D`. Three things make that exact:

* :math:`E` and :math:`\eta` are kept as squares of their roots, so that a product such as :math:`z^2\eta q` is right
  even where :math:`\eta` or :math:`E` alone would be a subnormal number;
* where :math:`E` would overflow, :math:`\ln(1+t)` is its asymptote :math:`\ln\lambda - a`;
* :math:`D` cancels for small :math:`t`: there :math:`D = E^2 h(t)` with the series of
  :math:`h(t) = (\ln(1+t) - t/(1+t))/t^2`.

Two implementations follow. :func:`curve`, :func:`first` and :func:`second` are ordinary differentiable tensor
maths, which compilers and transforms can trace. :func:`forward_in_chunks` and :func:`backward_in_chunks` do the same
for float32 on a CPU, in place on chunks that stay in the cache; eager torch would otherwise pay for memory traffic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

#: A parameter as the functions here take it: a number, or a tensor that broadcasts against z.
Parameter: TypeAlias = float | Tensor

LOG2E = 1 / math.log(2)


class Limits(NamedTuple):
    """Bounds that keep every intermediate of one dtype finite, and the series of h."""

    largest: float  # |z| and |kappa| inside the gate
    lam_smallest: float  # below it the curve equals its Gumbel limit to rounding
    lam_largest: float  # above it AGLU equals the identity to rounding
    exponent: float  # E stays below 2**exponent
    product: float  # and lam * E below 2**product
    threshold: float  # t below which D comes from the series
    series: tuple[float, ...]  # of h, ascending
    series_slope: tuple[float, ...]  # of k(t) = ((1 + t)**-2 - 2 h(t)) / t, ascending


def _taylor_h(terms: int) -> tuple[float, ...]:
    return tuple((-1) ** n * (n + 1) / (n + 2) for n in range(terms))


def _taylor_k(terms: int) -> tuple[float, ...]:
    return tuple((-1) ** (n + 1) * (n + 2) * (n + 1) / (n + 3) for n in range(terms))


#: The cubic for float32 is the least-squares fit to h at Chebyshev points of [0, 0.09]: relative error 7.5e-7.
_CUBIC_H = (0.49999965067, -0.66654086896, 0.74286059114, -0.66754146138)

LIMITS = {
    torch.float32: Limits(2.0**40, 2.0**-40, 2.0**60, 100.0, 120.0, 0.09, _CUBIC_H, _taylor_k(8)),
    torch.float64: Limits(2.0**100, 2.0**-100, 2.0**300, 800.0, 900.0, 0.01, _taylor_h(8), _taylor_k(9)),
}


def _clamp(value: Parameter, lowest: float, highest: float) -> Parameter:
    if isinstance(value, Tensor):
        return value.clamp(lowest, highest)
    return min(max(value, lowest), highest)


def _gain(kappa: Parameter, lam: Parameter, limits: Limits) -> Parameter:
    """κ within a finite range; 0 where λ is infinite, so that AGLU is the identity at ±∞ too."""
    safe = _clamp(kappa, -limits.largest, limits.largest)
    if isinstance(lam, Tensor):
        return torch.where(lam == math.inf, torch.zeros_like(lam), safe)
    return safe * 0.0 if lam == math.inf else safe


def _safe_lam(lam: Parameter, limits: Limits) -> Parameter:
    """λ within the range in which the formulas are finite; a negative λ becomes NaN."""
    safe = _clamp(lam, limits.lam_smallest, limits.lam_largest)
    if isinstance(lam, Tensor):
        return torch.where(lam < 0, math.nan, safe)
    return math.nan if lam < 0 else safe  # a number that was a tensor: see forward_in_chunks


def _ln(value: Parameter) -> Parameter:
    return value.log() if isinstance(value, Tensor) else math.log(value)


def _largest_exponent(log2_lam: Parameter, limits: Limits) -> Parameter:
    """The base-2 logarithm at which E is cut, so that neither E nor λE overflows."""
    bound = limits.product - log2_lam
    return bound.clamp(max=limits.exponent) if isinstance(bound, Tensor) else min(bound, limits.exponent)


def _polynomial(coefficients: tuple[float, ...], t: Tensor) -> Tensor:
    value = torch.full_like(t, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * t + coefficient
    return value


def _log1p(t: Tensor, s: Tensor) -> Tensor:
    """ln(1+t), right relative to itself, with s = 1/(1+t).

    What rounding takes from 1 + t is given back: ln(1+t) = ln u + (t − (u − 1))/u. A compiled loop takes twice as long
    for torch's log1p as for all of this.
    """
    u = 1 + t
    return u.log() + (t - (u - 1)) * s


class Curve(NamedTuple):
    """What every value and derivative is made of, at one (z, κ, λ)."""

    z: Tensor  # clamped to a finite range
    kappa: Parameter
    lam: Parameter
    a: Tensor
    root_E: Tensor
    t: Tensor
    s: Tensor
    q: Tensor
    log_u: Tensor  # ln(1 + t)
    root_eta: Tensor
    limits: Limits


def curve(z: Tensor, kappa: Parameter, lam: Parameter) -> Curve:
    """Evaluate the parts; ``z`` in float32 or float64, the parameters broadcastable against it."""
    limits = LIMITS[z.dtype]
    z = z.clamp(-limits.largest, limits.largest)
    kappa = _gain(kappa, lam, limits)
    lam = _safe_lam(lam, limits)
    log_lam = _ln(lam)
    # a = κz,  E = e^(−a),  t = λE
    a = z * kappa
    half_cap = _largest_exponent(log_lam * LOG2E, limits) * (0.5 / LOG2E)
    root_E = (a * -0.5).clamp(max=half_cap).exp()
    t = (root_E * root_E) * lam
    # s = 1/(1+t),  q = E s
    s = 1 / (1 + t)
    q = root_E * root_E * s
    # ln(1+t), or its asymptote ln λ − a where E was cut
    log_u = torch.maximum(_log1p(t, s), log_lam - a)
    # √η = exp(−ln(1+t) / 2λ)
    root_eta = torch.exp(log_u * (-0.5 / lam))
    return Curve(z, kappa, lam, a, root_E, t, s, q, log_u, root_eta, limits)


def value(z: Tensor, c: Curve, gated: bool) -> Tensor:
    """η, or zη with its limit 0 where η is 0 and z infinite; ``z`` is the unclamped input of ``c``."""
    if not gated:
        return c.root_eta * c.root_eta
    # AGLU(∓∞) = ∓0 for κ ≷ 0: the side on which the gate closes must be finite before the product
    finite = torch.finfo(z.dtype).max
    if isinstance(c.kappa, Tensor):
        # of whole tensors, also where κ is one number: in a compiled loop that is the faster way
        z = torch.where(c.kappa > 0, z.clamp(min=-finite), torch.where(c.kappa < 0, z.clamp(max=finite), z))
    elif c.kappa != 0:
        z = z.clamp(min=-finite) if c.kappa > 0 else z.clamp(max=finite)
    return (z * c.root_eta) * c.root_eta


def _small(c: Curve) -> tuple[Tensor, Tensor, Tensor]:
    """Where t is small, and there t and E = t/λ (0 elsewhere, so that their powers stay finite)."""
    small = c.t < c.limits.threshold
    t = torch.where(small, c.t, 0.0)
    return small, t, t * (1 / c.lam)


def _D(c: Curve) -> Tensor:
    """D = (L − q)/λ = E² h(t)."""
    small, t, E = _small(c)
    # a division costs as much as ten products
    per_lam = 1 / c.lam
    series = E * E * _polynomial(c.limits.series, t)
    return torch.where(small, series, (c.log_u - c.t * c.s) * per_lam * per_lam)


class First(NamedTuple):
    """First derivatives of η or zη."""

    z: Tensor
    kappa: Tensor
    lam: Tensor


def first(c: Curve, gated: bool) -> First:
    r"""Eqs. 7–9 of the paper, the second one corrected.

    .. math::
        \partial_z (z\eta) = \eta(1 + aq),\quad \partial_\kappa (z\eta) = z^2\eta q,\quad
        \partial_\lambda (z\eta) = z\eta D
    """
    D_eta = _D(c) * c.root_eta
    if gated:
        # z²ηq as a square, of z √(ηE), times s
        z_root_eta = c.z * c.root_eta
        root = z_root_eta * c.root_E
        return First(
            z=(1 + c.a * c.q) * c.root_eta * c.root_eta,
            kappa=(root * c.s) * root,
            lam=D_eta * z_root_eta,
        )
    root_E_s = c.root_E * c.s
    return First(
        z=(c.kappa * c.root_E) * root_E_s * c.root_eta * c.root_eta,
        kappa=(c.z * c.root_E) * root_E_s * c.root_eta * c.root_eta,
        lam=D_eta * c.root_eta,
    )


class Second(NamedTuple):
    """Second derivatives of η or zη."""

    zz: Tensor
    z_kappa: Tensor
    z_lam: Tensor
    kappa_kappa: Tensor
    kappa_lam: Tensor
    lam_lam: Tensor


def second(c: Curve, gated: bool) -> Second:
    r"""All second derivatives, from those of :math:`\eta(a, \lambda)`.

    .. math::
        \eta_a = \eta q,\quad \eta_{aa} = \eta q (q - s),\quad \eta_\lambda = \eta D,\quad
        \eta_{a\lambda} = \eta q (D - q),\quad \eta_{\lambda\lambda} = \eta (D^2 + D_\lambda),\quad
        D_\lambda = (q^2 - 2D)/\lambda = E^3 k(t)
    """
    D = _D(c)
    small, t, E = _small(c)
    series = E * E * E * _polynomial(c.limits.series_slope, t)
    D_lam = torch.where(small, series, (c.q * c.q - 2 * D) / c.lam)
    eta = c.root_eta * c.root_eta
    eta_a = eta * c.q
    eta_aa = eta_a * (c.q - c.s)
    eta_lam = eta * D
    eta_a_lam = eta_a * (D - c.q)
    eta_lam_lam = eta * (D * D + D_lam)
    z, kappa, a = c.z, c.kappa, c.a
    if gated:
        return Second(
            zz=kappa * (2 * eta_a + a * eta_aa),
            z_kappa=z * (2 * eta_a + a * eta_aa),
            z_lam=eta_lam + a * eta_a_lam,
            kappa_kappa=z * z * z * eta_aa,
            kappa_lam=z * z * eta_a_lam,
            lam_lam=z * eta_lam_lam,
        )
    return Second(
        zz=kappa * kappa * eta_aa,
        z_kappa=eta_a + a * eta_aa,
        z_lam=kappa * eta_a_lam,
        kappa_kappa=z * z * eta_aa,
        kappa_lam=z * eta_a_lam,
        lam_lam=eta_lam_lam,
    )


# --- float32 on a CPU, in chunks ---------------------------------------------------------------------------------

#: Elements per chunk and thread: a chunk's buffers stay in the cache, and a pass over it takes longer than its call.
CHUNK = 2**16

#: Where the lean formulas hold: nothing overflows or becomes subnormal on the way. Backward, λ² divides at the end.
LEAN_LAM = (2.0**-6, 2.0**10)
LEAN_A = 80.0

#: Where η itself might become subnormal, its root is kept larger, by exp(SHIFT).
SHIFT = 20.0

#: ln(1+t) − t/(1+t) = x²(1/2 + x/3 + x²/4 + …) with x = t/(1+t): least-squares cubic on [0, 0.17], relative error 3e-6.
LEAN_THRESHOLD = 0.17
_CUBIC_X = tuple(torch.tensor(c, dtype=torch.float32) for c in (0.49999854889, 0.33360771826, 0.24208472163))
_SLOPE_X = 0.27018573525

#: The mean of ln(1+t) − x from which on its sum may be the difference of two: 1 + t is rounded to 6e-8.
LEAN_MEAN = 2.0**-6

#: A channel with this many elements makes a row of its own; shorter ones share a row.
LONG = 256


class Pieces(NamedTuple):
    """How z is taken apart along a first dimension, with what κ and λ are beside it.

    With numbers, z is a vector. With a value per channel it is a matrix: the parameters are a column where a row has
    one channel's elements, and a row where it has all channels, of one sample or of more.
    """

    shape: tuple[int, ...]
    spread: tuple[int, int, int]  # the channels among what the parameters lie beside
    kappa: Parameter
    lam: Parameter

    @classmethod
    def of(cls, z: Tensor, kappa: Parameter, lam: Parameter) -> Pieces:
        many = [p.shape for p in (kappa, lam) if isinstance(p, Tensor) and p.numel() > 1]
        if not many:
            return cls((z.numel(),), (1, 1, 1), float(kappa), float(lam))
        dim = next(d for d, size in enumerate(many[0]) if size > 1)
        outer, channels, inner = z.shape[:dim].numel(), z.shape[dim], z.shape[dim + 1 :].numel()
        shape, spread, beside = (outer * channels, inner), (outer, channels, 1), (-1, 1)
        if inner < LONG:
            # what a row costs at its beginning counts for little in 512 elements
            samples = math.gcd(outer, 2 ** (2 * LONG // (channels * inner)).bit_length())
            shape, beside = (outer // samples, samples * channels * inner), (1, -1)
            spread = (samples, channels, inner)
        parameters = (
            torch.as_tensor(p, dtype=torch.float32).reshape(-1, 1).expand(spread).reshape(beside) for p in (kappa, lam)
        )
        return cls(shape, spread, *parameters)

    def chunks(self) -> Iterator[slice]:
        """Of the first dimension."""
        length = self._longest()
        return (slice(start, start + length) for start in range(0, self.shape[0], length))

    def _longest(self) -> int:
        # torch's threads share each chunk
        return min(self.shape[0], max(1, CHUNK * torch.get_num_threads() // math.prod(self.shape[1:])))

    def buffers(self, count: int) -> list[Tensor]:
        """In float32, for the longest chunk."""
        return [torch.empty(self._longest(), *self.shape[1:], dtype=torch.float32) for _ in range(count)]

    def beside(self, chunk: slice, *parameters: Any) -> list[Any]:
        """What of the parameters, or of their gradients, lies beside a chunk."""
        column = isinstance(self.kappa, Tensor) and len(self.kappa) > 1
        return [p[chunk] for p in parameters] if column else [*parameters]

    def gradient(self, sums: Parameter, parameter: Parameter) -> Tensor | None:
        """That of a parameter, from the sums beside the chunks."""
        if not isinstance(parameter, Tensor):
            return None
        if not isinstance(sums, Tensor):
            return torch.tensor(sums, dtype=torch.float32).view(parameter.shape)
        per_channel = sums.view(self.spread).sum((0, 2))
        return (per_channel if parameter.numel() > 1 else per_channel.sum()).view(parameter.shape)


class Lean:
    """The lean formulas of a chunk, with numbers κ and λ or with tensors that broadcast against it."""

    def __init__(self, kappa: Parameter, lam: Parameter) -> None:
        self.kappa, self.lam = kappa, lam
        lowest, highest = (x.item() for x in lam.aminmax()) if isinstance(lam, Tensor) else (lam, lam)
        self._lowest_lam = lowest
        # so κz is no limited product: the bounds of curve() hold for every element, whatever else is in its chunk
        limit = LIMITS[torch.float32].largest
        smallest, largest = (
            (x.item() for x in kappa.abs().aminmax()) if isinstance(kappa, Tensor) else 2 * (abs(kappa),)
        )
        self._holds = LEAN_LAM[0] <= lowest and highest <= LEAN_LAM[1] and LEAN_A / limit < smallest <= largest <= limit
        if self._holds:
            self._log_lam = lam.log() if isinstance(lam, Tensor) else torch.tensor(math.log(lam), dtype=torch.float32)
            self._exponent, self.slope = -0.5 / lam, kappa / lam

    def shift(self, x: Tensor) -> float | None:
        """What ln √η gets added, so that products with η become no subnormal numbers: 0, mostly.

        None where the lean formulas do not hold: NaN and infinities are among it.
        """
        if not self._holds:
            return None
        if isinstance(self.kappa, Tensor):
            lowest, highest = (a.item() for a in torch.aminmax(x * self.kappa))
        else:
            lowest, highest = sorted(self.kappa * a.item() for a in torch.aminmax(x))
        if not max(-lowest, highest) < LEAN_A:
            return None
        # −ln η is largest for the smallest a and λ
        return 0.0 if math.log1p(self._lowest_lam * math.exp(-lowest)) < LEAN_A * self._lowest_lam else SHIFT

    def t(self, x: Tensor, out: Tensor) -> Tensor:
        """t = exp(ln λ − κz)."""
        if isinstance(self.kappa, Tensor):
            torch.sub(self._log_lam, torch.mul(x, self.kappa, out=out), out=out)
        else:
            torch.add(self._log_lam, x, alpha=-self.kappa, out=out)
        return out.exp_()

    def root_eta(self, log_u: Tensor, shift: float, out: Tensor) -> Tensor:
        """√η = exp(−ln(1+t) / 2λ), times exp(shift)."""
        torch.mul(log_u, self._exponent, out=out)
        return (out.add_(shift) if shift else out).exp_()

    def through(self, r: Tensor, vq: Tensor, gated: bool, out: Tensor) -> Tensor:
        """∂z: r + κ v q of zη, κ v q of η."""
        if not gated:
            return torch.mul(vq, self.slope, out=out)
        if isinstance(self.slope, Tensor):
            return torch.addcmul(r, vq, self.slope, out=out)
        return torch.add(r, vq, alpha=self.slope, out=out)


def _lean_D(fraction: Tensor, log_u: Tensor, out: Tensor, mask: Tensor) -> Tensor:
    """λ² D = ln(1+t) − x, or its series where that cancels; ``log_u`` is overwritten."""
    torch.add(_CUBIC_X[2], fraction, alpha=_SLOPE_X, out=out)
    torch.addcmul(_CUBIC_X[1], out, fraction, out=out)
    torch.addcmul(_CUBIC_X[0], out, fraction, out=out)
    out.mul_(fraction).mul_(fraction)
    return out.lerp_(log_u.sub_(fraction), torch.gt(fraction, LEAN_THRESHOLD, out=mask))


def _sum_D(v: Tensor, fraction: Tensor, log_u: Tensor, buffer: Tensor) -> float:
    """Σ v λ² D: the difference of two sums, unless too much of it would cancel."""
    size = torch.abs(v, out=buffer)
    if torch.dot(size, log_u).item() - torch.dot(size, fraction).item() >= LEAN_MEAN * size.sum().item():
        return torch.dot(v, log_u).item() - torch.dot(v, fraction).item()
    return torch.dot(v, _lean_D(fraction, log_u, buffer, torch.empty_like(v))).item()


def _sum_beside(terms: Tensor | float, parameter: Parameter) -> Tensor | float:
    """What of a chunk's terms belongs to each value of a parameter."""
    if not isinstance(terms, Tensor):
        return terms
    return terms.sum_to_size(parameter.shape) if isinstance(parameter, Tensor) else terms.sum().item()


def forward_in_chunks(z: Tensor, kappa: Parameter, lam: Parameter, gated: bool) -> tuple[Tensor, Tensor]:
    """η or zη of a CPU tensor, float32 inside; and whether the lean formulas held everywhere, without a shift.

    Reading the parameters costs nothing on a CPU in eager mode; traced code does not come here.
    """
    z = z.contiguous()
    y = torch.empty_like(z)
    pieces = Pieces.of(z, kappa, lam)
    inputs, outputs = z.view(pieces.shape), y.view(pieces.shape)
    short = z.dtype != torch.float32
    buffers = pieces.buffers(3 if short else 1)
    ordinary = True
    for chunk in pieces.chunks():
        x, out = inputs[chunk], outputs[chunk]
        root_eta, *wide = (buffer[: len(x)] for buffer in buffers)
        if short:
            x = wide[0].copy_(x)
        at = pieces.beside(chunk, pieces.kappa, pieces.lam)
        lean = Lean(*at)
        shift = lean.shift(x)
        ordinary &= shift == 0
        if shift is None:
            out.copy_(value(x, curve(x, *at), gated))
            continue
        result = wide[1] if short else out
        # ln(1+t): torch's log1p takes four times as long, and the value does not gain by it
        log_u = lean.t(x, result).add_(1.0).log_()
        lean.root_eta(log_u, 0.0, root_eta)
        torch.mul(torch.mul(x, root_eta, out=result) if gated else root_eta, root_eta, out=result)
        if short:
            out.copy_(result)
    return y, torch.tensor(ordinary)


def backward_in_chunks(
    grad: Tensor, z: Tensor, kappa: Parameter, lam: Parameter, gated: bool, ordinary: bool, learned: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of z and, if they are ``learned``, of κ and λ (float32) of a CPU tensor."""
    z, grad = z.contiguous(), grad.contiguous()
    grad_z = torch.empty_like(z)
    pieces = Pieces.of(z, kappa, lam)
    inputs, incoming, outputs = (x.view(pieces.shape) for x in (z, grad, grad_z))
    short = z.dtype != torch.float32
    buffers = pieces.buffers(6 if short else 4)
    sums: list[Any] = [torch.zeros_like(p) if isinstance(p, Tensor) else 0.0 for p in (pieces.kappa, pieces.lam)]
    for chunk in pieces.chunks():
        x, g, out = inputs[chunk], incoming[chunk], outputs[chunk]
        fraction, log_u, v, D, *wide = (buffer[: len(x)] for buffer in buffers)
        if short:
            x, g = wide[0].copy_(x), wide[1].copy_(g)
        at = pieces.beside(chunk, pieces.kappa, pieces.lam)
        lean = Lean(*at)
        found: list[Any] = [0.0, 0.0]
        shift = 0.0 if ordinary else lean.shift(x)
        if shift is None:
            f = first(curve(x, *at), gated)
            out.copy_(g * f.z)
            found = [_sum_beside(g * f.kappa, at[0]), _sum_beside(g * f.lam, at[1])]
        else:
            # x = t/(1+t) = λq
            lean.t(x, fraction)
            torch.add(fraction, 1.0, out=log_u)
            fraction.div_(log_u)
            log_u.log_()
            # r = g η
            root_eta = lean.root_eta(log_u, shift, v)
            r = torch.mul(g, root_eta, out=g if short else out).mul_(root_eta)
            # of zη   ∂z: r + κ v q,   ∂κ: z v q,   ∂λ: v D   with v = r z
            # of η    ∂z: κ v q,       ∂κ: z v q,   ∂λ: v D   with v = r
            by_channel = isinstance(lean.lam, Tensor)
            if learned and by_channel:
                _lean_D(fraction, log_u, D, v)
            v = torch.mul(r, x, out=v) if gated else r
            scale = math.exp(-2 * shift)
            if learned:
                of_lam = D.mul_(v) if by_channel else _sum_D(v, fraction, log_u, D)
                found[1] = _sum_beside(of_lam, lean.lam) * (scale / lean.lam / lean.lam)
            fraction.mul_(v)
            if learned:
                of_kappa = torch.mul(fraction, x, out=D) if by_channel else torch.dot(fraction, x).item()
                found[0] = _sum_beside(of_kappa, lean.lam) * (scale / lean.lam)
            result = lean.through(r, fraction, gated, g if short else out)
            if shift:
                result.mul_(scale)
            if short:
                out.copy_(result)
        for i, beside in enumerate(pieces.beside(chunk, *sums)):
            if isinstance(beside, Tensor):
                beside += found[i]
            else:
                sums[i] += found[i]
    return grad_z, pieces.gradient(sums[0], kappa), pieces.gradient(sums[1], lam)
