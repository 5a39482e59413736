"""ZipfPair: two streams of keys for window joins, whose hot keys are the same, unrelated or opposite."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as count_up
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.datasets.zipf import Zipf, check_key_name, whole_number
from semistream.errors import InvalidArgument

Correlation: TypeAlias = Literal["correlated", "uncorrelated", "anti-correlated"]
_KEYS, _LEFT_DRAWS, _RIGHT_DRAWS, _RIGHT_KEYS = range(4)  # seeds that are drawn from the one given


class ZipfPair:
    """Two endless streams of Zipf keys, one tuple of each at every instant, drawn independently of each other.

    Parameters
    ----------
    exponent
        The skew of both streams, or of the left and of the right one: 0 is uniform, 1 is Zipf's law.
    domain
        How many different keys there are; the paper has 50, and 10 and 200 in 5.2.4.
    correlation
        ``"correlated"``: the k-th most frequent key of the one is that of the other. ``"anti-correlated"``: it is the
        k-th least frequent. ``"uncorrelated"``: hot keys lie anywhere, for each stream on its own.
    seed
        Fixes all draws. Keys are where they are for any exponents and correlations, so that runs can be compared.

    Examples
    --------
    >>> streams = ZipfPair(1.0, 50, correlation="anti-correlated", seed=3)
    >>> left, right = streams.keys(10_000)
    >>> hot, cold = streams.left.hot_keys(50)[[0, -1]]
    >>> [round(float((keys == hot).mean()), 1) for keys in (left, right)], round(float((right == cold).mean()), 1)
    ([0.2, 0.0], 0.2)
    >>> batch, other = next(ZipfPair((1.0, 0.0), 50).batches(rows=500))
    >>> batch.schema.names, other.num_rows
    (['key', 'time'], 500)

    References
    ----------
    WINDOW 5.2: values are independent and identically distributed within each stream; 5.2.2 has the correlations, with
    what they do to the number of results.
    """

    def __init__(
        self,
        exponent: float | tuple[float, float],
        domain: int,
        *,
        correlation: Correlation = "uncorrelated",
        seed: int = 0,
    ) -> None:
        if correlation not in ("correlated", "uncorrelated", "anti-correlated"):
            raise InvalidArgument(
                f"correlation is {correlation!r}; give 'correlated', 'uncorrelated' or 'anti-correlated'."
            )
        of_left, of_right = exponent if isinstance(exponent, tuple) else (exponent, exponent)
        self.correlation = correlation
        state = np.random.SeedSequence(whole_number("seed", seed, least=0)).generate_state(4, np.uint64) >> np.uint64(1)
        seeds = [int(number) for number in state]
        #: Where the keys of each stream lie: rank 1 is its most frequent. They are not drawn from.
        self.left = Zipf(of_left, domain, seed=seeds[_KEYS])
        self.right = Zipf(of_right, domain, seed=seeds[_RIGHT_KEYS if correlation == "uncorrelated" else _KEYS])
        self._left_draws = Zipf(of_left, domain, seed=seeds[_LEFT_DRAWS], permute=False)
        self._right_draws = Zipf(of_right, domain, seed=seeds[_RIGHT_DRAWS], permute=False)

    @property
    def position(self) -> int:
        """The next instant, from 0."""
        return self._left_draws.position

    def keys(self, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The keys of the next ``n`` tuples of the left stream and of the right one."""
        left, right = self._left_draws.ranks(n), self._right_draws.ranks(n)
        if self.correlation == "anti-correlated":
            right = self.right.domain + 1 - right
        return self.left.keys_of(left), self.right.keys_of(right)

    def batches(
        self, rows: int, count: int | None = None, *, name: str = "key"
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Arrow batches of ``rows`` tuples of both streams: the key in column ``name``, and the instant in ``time``.

        ``count`` of each, or without end if it is None.
        """
        rows = whole_number("rows", rows, least=1)
        numbers = count_up() if count is None else range(whole_number("count", count, least=0))
        check_key_name(name, taken=("time",))
        return (self._batch(rows, name) for _ in numbers)

    def _batch(self, rows: int, name: str) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        time = pa.array(np.arange(self.position, self.position + rows, dtype=np.int64))
        left, right = self.keys(rows)
        return pa.record_batch({name: left, "time": time}), pa.record_batch({name: right, "time": time})

    def __repr__(self) -> str:
        exponents = (self.left.exponent, self.right.exponent)
        return f"ZipfPair({exponents}, {self.left.domain}, correlation={self.correlation!r})"
