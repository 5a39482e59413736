"""Numba kernels that draw Zipf ranks by rejection-inversion and permute keys, both without a table.

Randomness is counter-based: the draw at position ``i`` depends only on the stream's key and ``i`` (SplitMix64,
Steele, Lea & Flood, OOPSLA 2014). A stream therefore gives the same draws however it is cut into batches and from
whichever position it is read.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from semistream.kernels.compiler import kernel, subroutine
from semistream.kernels.splitmix64 import GOLDEN, mix

_RETRY = np.uint64(0xD1B54A32D192ED03)
_ONE = np.uint64(1)
_TO_UNIT = 2.0**-53
_LIMIT_OF_SERIES = 1e-8  # below this, the first terms of the series are exact to the last bit
_FINE_BITS = 32  # a double resolves ranks of this many bits with 20 bits to spare
_TABLED = 32  # number of ranks with a precomputed acceptance limit; skewed draws use them again and again


@subroutine
def _integral(x: float, one_minus_s: float) -> float:
    """Return H(x), the integral of t**-s from 1 to x; smooth where s passes 1."""
    log_x = math.log(x)
    t = one_minus_s * log_x
    if abs(t) > _LIMIT_OF_SERIES:
        return math.expm1(t) / one_minus_s
    return log_x * (1.0 + t * 0.5 * (1.0 + t / 3.0))


@subroutine
def _inverse_integral(u: float, one_minus_s: float) -> float:
    """Return the x with H(x) = u."""
    t = u * one_minus_s
    if abs(t) > _LIMIT_OF_SERIES:
        # Rounding can put t just below -1, outside the logarithm's domain. Away from 0 the plain logarithm is as exact
        # as log1p and twice as fast.
        log_y = math.log(max(1.0 + t, 0.0)) if abs(t) > 0.5 else math.log1p(t)
        return math.exp(log_y / one_minus_s)
    return math.exp(u * (1.0 - t * (0.5 - t / 3.0)))


@subroutine
def _acceptance_limit(rank: int, exponent: float) -> float:
    """Return the smallest accepted u in ``rank``'s part of the hat; the part above it is as wide as the rank's P."""
    return _integral(rank + 0.5, 1.0 - exponent) - math.exp(-exponent * math.log(rank))


@kernel(allocates=True)
def draw_zipf_ranks(
    stream_key: np.uint64, position: int, exponent: float, domain: int, out: npt.NDArray[np.int64]
) -> None:
    """Fill ``out`` with the ranks (1..domain) from ``position`` on: P(rank k) ~ k**-exponent.

    Rejection-inversion for a monotone discrete distribution (W. Hörmann & G. Derflinger, ACM TOMACS 6(3), 1996):
    invert the integral of the hat, round to a rank, reject the sliver by which the hat exceeds it. A draw takes fewer
    than 1.02 tries on average, for every exponent and domain.
    """
    oms = 1.0 - exponent
    low = _integral(1.5, oms) - 1.0
    high = _integral(domain + 0.5, oms)
    # A rank at most this far above x is accepted without evaluating the hat (the paper's s).
    squeeze = 2.0 - _inverse_integral(_integral(2.5, oms) - 2.0**-exponent, oms)
    limits = np.empty(_TABLED)
    for k in range(1, _TABLED):
        limits[k] = _acceptance_limit(k, exponent)
    start = stream_key + np.uint64(position) * GOLDEN
    for i in range(out.size):
        z = mix(start + np.uint64(i + 1) * GOLDEN)
        while True:
            u = high + np.float64(z >> np.uint64(11)) * _TO_UNIT * (low - high)
            x = _inverse_integral(u, oms)
            # Compare as doubles: x may be infinite, which has no integer value.
            rank = domain if x >= domain else max(1, int(x + 0.5))
            if rank >= (1 << _FINE_BITS):
                # Here the hat exceeds the rank by one part in 2**60, far less than the rounding error of the test,
                # which would reject good draws.
                rank = _refine(rank, domain, z)
                break
            if rank - x <= squeeze or u >= (limits[rank] if rank < _TABLED else _acceptance_limit(rank, exponent)):
                break
            z = mix(z + _RETRY)
        out[i] = rank


@subroutine
def _refine(rank: int, domain: int, z: np.uint64) -> int:
    """Draw a rank uniformly from the block around ``rank`` that a double cannot resolve.

    Within the block the probability hardly changes (one part in 2**31). Without this step most ranks above 2**53
    could never be drawn.
    """
    shift = max(1, math.frexp(rank)[1] - _FINE_BITS)
    base = (rank >> shift) << shift
    while True:
        z = mix(z + _RETRY)
        fine = base + int(np.int64(z >> np.uint64(64 - shift)))
        if fine <= domain:
            return fine


@kernel
def draw_uniform_ranks(
    stream_key: np.uint64, position: int, domain: int, bits: int, out: npt.NDArray[np.int64]
) -> None:
    """Fill ``out`` with equally likely ranks 1..domain: exponent 0 without rounding error.

    ``bits`` is the bit length of ``domain - 1``. Words of that many bits are drawn until one is below ``domain``.
    """
    start = stream_key + np.uint64(position) * GOLDEN
    shift, limit = np.uint64(64 - max(bits, 1)), np.uint64(domain)
    for i in range(out.size):
        z = mix(start + np.uint64(i + 1) * GOLDEN)
        while (z >> shift) >= limit:
            z = mix(z + _RETRY)
        out[i] = np.int64(z >> shift) + 1


@kernel
def permute_ranks(
    ranks: npt.NDArray[np.int64],
    domain: int,
    bits: int,
    round_keys: npt.NDArray[np.uint64],
    first: int,
    out: npt.NDArray[np.int64],
) -> None:
    """Map rank r to ``first + p(r - 1)``, where p permutes [0, domain); ``out`` may be ``ranks``.

    Each round (add, multiply by an odd number, fold the upper half onto the lower) is a bijection of ``bits``-bit
    words, so their composition is one too. Walking its cycle until the word is below ``domain`` (Black & Rogaway,
    CT-RSA 2002) turns it into a bijection of [0, domain), in fewer than two steps on average. ``round_keys`` holds an
    addend and an odd factor for every round.
    """
    mask = (_ONE << np.uint64(bits)) - _ONE
    fold = np.uint64(max(1, (bits + 1) // 2))
    limit = np.uint64(domain)
    for i in range(ranks.size):
        x = np.uint64(ranks[i] - 1)
        while True:
            for r in range(0, round_keys.size, 2):
                x = ((x + round_keys[r]) * round_keys[r + 1]) & mask
                x ^= x >> fold
            if x < limit:
                break
        out[i] = np.int64(x) + first
