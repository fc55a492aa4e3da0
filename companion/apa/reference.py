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
from typing import NamedTuple, TypeAlias

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
    log_u = torch.maximum(torch.log1p(t), log_lam - a)
    # √η = exp(−ln(1+t) / 2λ)
    root_eta = torch.exp(log_u / lam * -0.5)
    return Curve(z, kappa, lam, a, root_E, t, s, q, log_u, root_eta, limits)


def value(z: Tensor, c: Curve, gated: bool) -> Tensor:
    """η, or zη with its limit 0 where η is 0 and z infinite; ``z`` is the unclamped input of ``c``."""
    if not gated:
        return c.root_eta * c.root_eta
    # AGLU(∓∞) = ∓0 for κ ≷ 0: the side on which the gate closes must be finite before the product
    finite = torch.finfo(z.dtype).max
    if isinstance(c.kappa, Tensor):
        unbounded = torch.full_like(c.kappa, math.inf)
        z = torch.maximum(z, torch.where(c.kappa > 0, -finite, -unbounded))
        z = torch.minimum(z, torch.where(c.kappa < 0, finite, unbounded))
    elif c.kappa != 0:
        z = z.clamp(min=-finite) if c.kappa > 0 else z.clamp(max=finite)
    return (z * c.root_eta) * c.root_eta


def _small(c: Curve) -> tuple[Tensor, Tensor]:
    """Where t is small, and E there (0 elsewhere, so that its powers stay finite)."""
    small = c.t < c.limits.threshold
    return small, torch.where(small, c.root_E * c.root_E, 0.0)


def _D(c: Curve) -> Tensor:
    """D = (L − q)/λ = E² h(t)."""
    small, E = _small(c)
    series = E * E * _polynomial(c.limits.series, torch.where(small, c.t, 0.0))
    return torch.where(small, series, (c.log_u - c.t * c.s) / c.lam / c.lam)


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
    root_E_s = c.root_E * c.s
    D_eta = _D(c) * c.root_eta
    if gated:
        z_root_E = c.z * c.root_E
        return First(
            z=(1 + c.a * c.q) * c.root_eta * c.root_eta,
            kappa=z_root_E * (c.z * root_E_s) * c.root_eta * c.root_eta,
            lam=D_eta * (c.z * c.root_eta),
        )
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
    small, E = _small(c)
    series = E * E * E * _polynomial(c.limits.series_slope, torch.where(small, c.t, 0.0))
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

#: Elements per chunk: the float32 buffers of one chunk stay in the cache, and two threads still share the work.
CHUNK = 2**18

#: Where the lean formulas hold: nothing overflows or becomes subnormal on the way. Backward, λ² divides at the end.
LEAN_LAM = (2.0**-6, 2.0**10)
LEAN_A = 80.0

#: ln(1+t) − t/(1+t) = x²(1/2 + x/3 + x²/4 + …) with x = t/(1+t): least-squares cubic on [0, 0.09], relative error 2e-7.
LEAN_THRESHOLD = 0.085
_CUBIC_X = (0.49999989775, 0.33336928567, 0.24803916063, 0.23359896991)


class _Workspace:
    """The buffers of one call, as long as its first and longest chunk."""

    def __init__(self, z: Tensor, buffers: int) -> None:
        size = min(CHUNK, z.numel())
        self._buffers = [torch.empty(size, dtype=torch.float32) for _ in range(buffers)]

    def __call__(self, length: int) -> list[Tensor]:
        return [buffer[:length] for buffer in self._buffers]


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Equal flat pieces of contiguous tensors."""
    return zip(*(torch.split(x.view(-1), CHUNK) for x in tensors), strict=True)


def _is_lean(x: Tensor, kappa: float, lam: float) -> bool:
    """Whether the lean formulas hold on this chunk; NaN and infinities answer no."""
    if not LEAN_LAM[0] <= lam <= LEAN_LAM[1]:
        return False
    lowest, highest = torch.aminmax(x)
    largest = max(-lowest.item(), highest.item())
    # the bounds of curve() hold here, too: an element's value does not depend on the others of its chunk
    return max(abs(kappa), largest) <= LIMITS[torch.float32].largest and abs(kappa) * largest < LEAN_A


def _lean_gate(x: Tensor, kappa: float, lam: float, t: Tensor, log_u: Tensor, root_eta: Tensor) -> None:
    # t = λ e^(−κz); eager torch has a faster exp2 than exp
    torch.mul(x, -kappa * LOG2E, out=t).exp2_().mul_(lam)
    # ln(1+t)
    torch.log1p(t, out=log_u)
    # √η = exp(−ln(1+t) / 2λ)
    torch.mul(log_u, -0.5 * LOG2E / lam, out=root_eta).exp2_()


def _store(value: Tensor, factor: Tensor, out: Tensor) -> None:
    """out = value · factor in float32, rounded once to the dtype of ``out``; ``value`` is overwritten."""
    if out.dtype == torch.float32:
        torch.mul(value, factor, out=out)
    else:
        out.copy_(value.mul_(factor))


def forward_in_chunks(z: Tensor, kappa: Parameter, lam: Parameter, gated: bool) -> Tensor:
    """η or zη of a CPU tensor with scalar parameters, float32 inside.

    Reading the parameters costs nothing on a CPU in eager mode; traced code does not come here.
    """
    k, m = float(kappa), float(lam)
    z = z.contiguous()
    y = torch.empty_like(z)
    workspace = _Workspace(z, 3)
    for z_chunk, out in _chunks(z, y) if z.numel() else ():
        x = z_chunk.float()
        if not _is_lean(x, k, m):
            out.copy_(value(x, curve(x, k, m), gated))
            continue
        t, log_u, root_eta = workspace(x.numel())
        _lean_gate(x, k, m, t, log_u, root_eta)
        _store(torch.mul(x, root_eta, out=t) if gated else t.copy_(root_eta), root_eta, out)
    return y


def backward_in_chunks(
    grad: Tensor, z: Tensor, kappa: Parameter, lam: Parameter, gated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of z, κ and λ (float32, 0-d) of a CPU tensor with scalar parameters."""
    k, m = float(kappa), float(lam)
    z, grad = z.contiguous(), grad.contiguous()
    grad_z = torch.empty_like(z)
    workspace = _Workspace(z, 6)
    sum_kappa = sum_lam = 0.0
    for z_chunk, grad_chunk, out in _chunks(z, grad, grad_z) if z.numel() else ():
        x, g = z_chunk.float(), grad_chunk.float()
        if not _is_lean(x, k, m):
            f = first(curve(x, k, m), gated)
            out.copy_(g * f.z)
            sum_kappa += torch.dot(g, f.kappa).item()
            sum_lam += torch.dot(g, f.lam).item()
            continue
        fraction, log_u, root_eta, r, y, D = workspace(x.numel())
        _lean_gate(x, k, m, fraction, log_u, root_eta)
        # x = t/(1+t) = λq
        torch.add(fraction, 1.0, out=y)
        fraction.div_(y)
        # λ² D = ln(1+t) − t/(1+t), or its series below the threshold
        torch.sub(log_u, fraction, out=D)
        torch.add(torch.tensor(_CUBIC_X[2]), fraction, alpha=_CUBIC_X[3], out=log_u)
        torch.addcmul(torch.tensor(_CUBIC_X[1]), log_u, fraction, out=log_u)
        torch.addcmul(torch.tensor(_CUBIC_X[0]), log_u, fraction, out=log_u)
        log_u.mul_(fraction).mul_(fraction)
        torch.gt(fraction, LEAN_THRESHOLD, out=y)
        torch.lerp(log_u, D, y, out=D).mul_(root_eta)
        # r = g √η
        torch.mul(g, root_eta, out=r)
        torch.mul(x, fraction, out=y)
        if gated:
            # ∂z: r (1 + κ z q) √η,   ∂κ: r z (z q) √η,   ∂λ: r z D √η
            torch.addcmul(r, r, y, value=k / m, out=fraction)
            r.mul_(x)
        else:
            # ∂z: r κ q √η,   ∂κ: r (z q) √η,   ∂λ: r D √η
            fraction.mul_(r).mul_(k / m)
        _store(fraction, root_eta, out)
        sum_kappa += torch.dot(r, y.mul_(root_eta)).item() / m
        sum_lam += torch.dot(r, D).item() / m / m
    return grad_z, torch.tensor(sum_kappa), torch.tensor(sum_lam)
