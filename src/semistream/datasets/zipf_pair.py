"""ZipfPair: two streams of keys for window joins, with the same, unrelated or opposite hot keys."""

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
_KEYS, _LEFT_DRAWS, _RIGHT_DRAWS, _RIGHT_KEYS = range(4)  # indices of the four seeds derived from the given one


class ZipfPair:
    """Two endless, independent streams of Zipf keys with one tuple each per instant.

    Keys of a stream are independent and identically distributed. Equal parameters give equal streams, however calls
    divide them.

    Parameters
    ----------
    exponent : float or tuple of two floats
        Skew of both streams, or a tuple with the skews of the left and the right one: 0 is uniform, 1 is Zipf's law.
    domain : int
        Number of distinct keys. The paper uses 50, and 10 and 200 in 5.2.4.
    correlation : {"uncorrelated", "correlated", "anti-correlated"}
        ``"correlated"``: both streams have the same k-th most frequent key. ``"anti-correlated"``: the k-th most
        frequent key of one is the k-th least frequent of the other. ``"uncorrelated"``, the default: each stream's hot
        keys are placed at random.
    seed : int
        Seed of the draws and of the hot keys. Runs of one seed are comparable: the left stream's hot keys are the
        same for all exponents and correlations, and the right stream's for all exponents.

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
    WINDOW 5.2: values are independent and identically distributed within each stream. 5.2.2 describes the
    correlations and their effect on the number of results.
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
        #: Map ranks to keys, for each stream; rank 1 is its most frequent key. Nothing is drawn from these two.
        self.left = Zipf(of_left, domain, seed=seeds[_KEYS])
        self.right = Zipf(of_right, domain, seed=seeds[_RIGHT_KEYS if correlation == "uncorrelated" else _KEYS])
        self._left_draws = Zipf(of_left, domain, seed=seeds[_LEFT_DRAWS], permute=False)
        self._right_draws = Zipf(of_right, domain, seed=seeds[_RIGHT_DRAWS], permute=False)

    @property
    def position(self) -> int:
        """Number of the next instant, from 0."""
        return self._left_draws.position

    def keys(self, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the keys of the next ``n`` tuples, of the left and of the right stream."""
        left, right = self._left_draws.ranks(n), self._right_draws.ranks(n)
        if self.correlation == "anti-correlated":
            right = self.right.domain + 1 - right
        return self.left.keys_of(left), self.right.keys_of(right)

    def batches(
        self, rows: int, count: int | None = None, *, name: str = "key"
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Return pairs of Arrow batches, left and right, of ``rows`` tuples each.

        Column ``name`` holds the key, column ``time`` the instant. Yields ``count`` pairs, or never ends if ``count``
        is None.
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
