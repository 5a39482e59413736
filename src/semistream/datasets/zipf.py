"""Zipf: a skewed stream of keys over a domain of any size, in constant memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from functools import lru_cache
from itertools import count as count_up
from typing import Self, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.datasets.kernels import draw_uniform_ranks, draw_zipf_ranks, permute_ranks
from semistream.errors import InvalidArgument

MAX_DOMAIN = 2**62
MAX_EXPONENT = 1000.0  # at 50 the second key is already rarer than one draw in 10**15
_MAX_INT64 = 2**63 - 1
_PERMUTATION_ROUNDS = 4
_SUMMED_TERMS = 1024  # summed directly; beyond these, Euler-Maclaurin is exact to the last bits


def whole_number(name: str, value: int, *, least: int, most: int = _MAX_INT64) -> int:
    """Return ``value`` as an int in ``[least, most]``, or raise `InvalidArgument` with the accepted range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {value!r}; give a whole number from {least} to {most}.") from None
    if isinstance(value, bool) or not least <= number <= most:
        raise InvalidArgument(f"{name} is {value!r}; give a whole number from {least} to {most}.")
    return number


def harmonic(n: int, exponent: float) -> float:
    """Return the generalised harmonic number, the sum of k**-exponent for k = 1..n, at the same cost for every n.

    Relative error below 1e-13: the first terms are summed, and the rest is approximated by Euler-Maclaurin (Graham,
    Knuth & Patashnik, Concrete Mathematics, 9.5) to the fifth derivative.

    >>> harmonic(3, 1.0) == 1 + 1 / 2 + 1 / 3, round(harmonic(10**9, 1.0), 6), harmonic(10**9, 0.0)
    (True, 21.300482, 1000000000.0)
    """
    if exponent == 0:
        return float(n)
    a = min(n, _SUMMED_TERMS)
    head = _sum_of_powers(a, exponent)
    if n == a:
        return head
    s, log_ratio = exponent, math.log(n / a)
    t = (1 - s) * log_ratio
    # Integral of x**-s from a to n; expm1(t)/t keeps its precision where s is near 1.
    integral: float = float(a) ** (1 - s) * log_ratio * (math.expm1(t) / t if t else 1.0)
    f_a: float = float(a) ** -s
    f_n: float = float(n) ** -s
    tail = integral + (f_n - f_a) / 2
    tail -= s * (f_n / n - f_a / a) / 12
    tail += s * (s + 1) * (s + 2) * (f_n / n**3 - f_a / a**3) / 720
    tail -= s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * (f_n / n**5 - f_a / a**5) / 30240
    return head + tail


@lru_cache(maxsize=64)
def _sum_of_powers(terms: int, exponent: float) -> float:
    """Return the sum of k**-exponent for k = 1..terms, rounded once."""
    return math.fsum(np.arange(1, terms + 1, dtype=np.float64) ** -exponent)


class Zipf:
    """Endless stream of keys in which the k-th most frequent of ``domain`` keys has P ~ k**-exponent.

    The distribution is the bounded discrete one, sampled by rejection-inversion. It is exact up to the rounding of
    doubles, and exactly uniform for exponent 0. It needs no table, so 10**9 or 2**62 keys cost as much as ten. Draw
    ``i`` depends only on ``seed`` and ``i``: two draws of 500 equal one of 1000. `seek` continues the same stream
    from any position, for a replay or to split the stream between processes.

    Parameters
    ----------
    exponent : float
        Skew, from 0 to 1000: 0 is uniform, 1 is Zipf's law.
    domain : int
        Number of distinct keys, from 1 to 2**62.
    seed : int
        Seed of the draws and the permutation. Streams with equal ``seed`` and ``domain`` have the same hot keys,
        whatever their exponents.
    permute : bool
        True (the default) to scatter hot keys over the key space by a pseudo-random permutation. False to make the
        first key the hottest, with frequency falling from there on.
    first : int
        Smallest key; keys fill ``[first, first + domain)``.

    Examples
    --------
    >>> Zipf(1.0, 1000, permute=False).keys(6).tolist()
    [839, 49, 171, 0, 4, 16]
    >>> stream = Zipf(1.0, 10**9, seed=7)
    >>> batch = next(stream.batches(rows=500))
    >>> batch.num_rows, batch.schema.names, stream.position
    (500, ['key', 'seq'], 500)

    References
    ----------
    HYBRID, Appendix, uses exponent 1; MESH 5.1, Table 3, varies it from 0 to 1. W. Hörmann & G. Derflinger,
    Rejection-inversion to generate variates from monotone discrete distributions, ACM TOMACS 6(3), 1996. The kernels
    are in `semistream.datasets.kernels`.
    """

    def __init__(self, exponent: float, domain: int, *, seed: int = 0, permute: bool = True, first: int = 0) -> None:
        try:
            usable = bool(0 <= exponent <= MAX_EXPONENT)  # false for NaN, like every comparison with it
        except TypeError:
            usable = False
        if not usable:
            raise InvalidArgument(
                f"exponent is {exponent!r}; give a number from 0 (uniform; 1 is Zipf's law) to {MAX_EXPONENT}."
            )
        self.exponent = float(exponent)
        self.domain = whole_number("domain", domain, least=1, most=MAX_DOMAIN)
        self.seed = whole_number("seed", seed, least=0)
        self.permute = permute
        self.first = whole_number("first", first, least=-(2**63), most=2**63 - self.domain)
        self._position = 0
        self._bits = (self.domain - 1).bit_length()
        state = np.random.SeedSequence(self.seed).generate_state(1 + 2 * _PERMUTATION_ROUNDS, np.uint64)
        self._stream_key = state[0]
        self._round_keys = state[1:].copy()
        self._round_keys[1::2] |= np.uint64(1)  # only odd factors are invertible modulo a power of two
        self._total = harmonic(self.domain, self.exponent)

    @property
    def position(self) -> int:
        """Number of draws before the next one."""
        return self._position

    def seek(self, position: int) -> Self:
        """Make the draw at ``position`` (from 0) the next one, and return the stream."""
        self._position = whole_number("position", position, least=0)
        return self

    def ranks(self, n: int) -> npt.NDArray[np.int64]:
        """Return the next ``n`` draws as ranks: 1 is the most frequent key, ``domain`` the least."""
        n = whole_number("n", n, least=0)
        out = np.empty(n, dtype=np.int64)
        if self.exponent == 0:
            draw_uniform_ranks(self._stream_key, self._position, self.domain, self._bits, out)
        else:
            draw_zipf_ranks(self._stream_key, self._position, self.exponent, self.domain, out)
        self._position += n
        return out

    def keys(self, n: int) -> npt.NDArray[np.int64]:
        """Return the next ``n`` draws as keys."""
        return self._to_keys(self.ranks(n))

    def hot_keys(self, n: int) -> npt.NDArray[np.int64]:
        """Return the ``n`` most frequent keys, most frequent first; draws nothing."""
        n = whole_number("n", n, least=0, most=self.domain)
        return self._to_keys(np.arange(1, n + 1, dtype=np.int64))

    def keys_of(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the keys of these ranks, each from 1 to ``domain``; draws nothing.

        >>> Zipf(1.0, 1000, permute=False).keys_of(np.array([1, 1000])).tolist()
        [0, 999]
        """
        wrong = ranks[(ranks < 1) | (ranks > self.domain)]
        if wrong.size:
            whole_number("rank", int(wrong[0]), least=1, most=self.domain)
        return self._to_keys(np.array(ranks, dtype=np.int64))

    def batches(self, rows: int, count: int | None = None, *, name: str = "key") -> Iterator[pa.RecordBatch]:
        """Return Arrow batches of ``rows`` keys in column ``name``, with their positions in ``seq``.

        Yields ``count`` batches, or never ends if ``count`` is None.
        """
        rows = whole_number("rows", rows, least=1)
        numbers = count_up() if count is None else range(whole_number("count", count, least=0))
        check_key_name(name, taken=("seq",))
        return (self._batch(rows, name) for _ in numbers)

    @overload
    def probability(self, rank: int) -> float: ...
    @overload
    def probability(self, rank: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]: ...
    def probability(self, rank: int | npt.NDArray[np.int64]) -> float | npt.NDArray[np.float64]:
        """Return the probability that a draw has this rank, for one rank or an array: k**-exponent over `harmonic`.

        >>> Zipf(1.0, 2).probability(1)
        0.6666666666666666
        """
        if isinstance(rank, np.ndarray):
            wrong = rank[(rank < 1) | (rank > self.domain)]
            if wrong.size:
                whole_number("rank", int(wrong[0]), least=1, most=self.domain)
            return np.asarray(rank.astype(np.float64) ** -self.exponent / self._total)
        one = whole_number("rank", rank, least=1, most=self.domain)
        weight: float = float(one) ** -self.exponent
        return weight / self._total

    def share(self, n: int) -> float:
        """Return the probability that a draw is among the ``n`` hottest keys: the hit rate of a perfect cache.

        >>> round(Zipf(1.0, 10**9).share(10**7), 2)  # one key in a hundred takes most of the stream
        0.78
        """
        return harmonic(whole_number("n", n, least=0, most=self.domain), self.exponent) / self._total

    def __repr__(self) -> str:
        return f"Zipf({self.exponent}, {self.domain}, seed={self.seed}, permute={self.permute}, first={self.first})"

    def _to_keys(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Convert the array of ranks to keys in place."""
        if self.permute:
            permute_ranks(ranks, self.domain, self._bits, self._round_keys, self.first, ranks)
        else:
            ranks += self.first - 1
        return ranks

    def _batch(self, rows: int, name: str) -> pa.RecordBatch:
        seq = np.arange(self._position, self._position + rows, dtype=np.int64)
        return pa.record_batch({name: self.keys(rows), "seq": seq})


def check_key_name(name: str, *, taken: tuple[str, ...]) -> None:
    """Raise `InvalidArgument` if the key column's name is empty or one of ``taken``."""
    if not name or name in taken:
        raise InvalidArgument(
            f"name is {name!r}; give the key column a non-empty name other than {' or '.join(taken)}."
        )
