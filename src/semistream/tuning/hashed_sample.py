"""HashedSample: all tuples of some keys, of a sample of a stream that is too long to look at them all."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from semistream.kernels.hashed_sample import choose_by_hash, count_chosen
from semistream.kernels.types import Int64s

_SLACK = 2  # times as many as wanted that are taken: how many tuples a key has is not known before


class HashedSample(NamedTuple):
    """Codes of the tuples whose keys were chosen, in their order, each key with P = ``rate`` by a hash of it.

    In a cache of n rows that all tuples go to, so many keys are held for each chosen one as there are for each row of a
    cache of n * rate that only those go to: what the small cache does, the large one does (SHARDS: C. Waldspurger,
    N. Park, A. Garthwaite & I. Ahmad, FAST 2015; for any policy, C. Waldspurger, T. Saemundsson, I. Ahmad & N. Park,
    USENIX ATC 2017). Whether a very hot key is among them is chance: ``expected`` is how many tuples there would be
    without it. What there are more or fewer asks for very hot keys, and a cache has these.
    """

    codes: Int64s
    rate: float
    warming: int  # of these codes come first, and nothing is counted of them
    expected: float  # of the codes after them

    @classmethod
    def of(cls, codes: Int64s, *, warming: int, most_tuples: int) -> Self:
        """At most about ``most_tuples`` of them, of which the first ``warming`` only warm a cache up."""
        rate = min(most_tuples / codes.size, 1.0)
        if rate == 1:
            return cls(codes, rate, warming, codes.size - warming)
        while (chosen := count_chosen(codes, _below(rate))) > _SLACK * most_tuples:
            rate /= 2
        out = np.empty(chosen, np.int64)
        choose_by_hash(codes, _below(rate), out)
        return cls(out, rate, count_chosen(codes[:warming], _below(rate)), rate * (codes.size - warming))


def _below(rate: float) -> np.uint64:
    return np.uint64(int(rate * 2**64))
