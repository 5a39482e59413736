"""KeySketch: estimate the key frequencies of a stream while it passes, in little memory and time.

It combines an unbiased sample of the stream (`OneInMany`), counts of the most frequent keys in a table of bounded size
(`HeavyKeys`), and evenly spaced codes from a stretch of any length (`ThinnedSample`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from datasketches import frequent_items_error_type, frequent_items_sketch

from semistream.costs.kernels import thin_counts
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.sampled_frequencies import COUNTED, FIT_BYTES, Fingerprint, frequencies_of_parts
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s

LEAST_BITS = 3  # minimum of the DataSketches library
_SLOT_BYTES = 18 + 24  # of the table: pointer, count and state; a Python int in three of four slots
_ITEM_BYTES = 8 + 72 + 4 * 32 + 2 * 8  # per returned key: a tuple of four ints in a list, and its two array entries
_GIVEN = 0.75  # share of the slots with keys, at most


class CountedKeys(NamedTuple):
    """Ascending key codes with their counts."""

    codes: Int64s
    counts: Int64s


class HeavyKeys:
    """Counts of the most frequent keys, in at most ``2**bits`` slots.

    A count is too high by at most 3.5 / 2**bits of the total, and by far less under skew, where few keys make up most
    of it (D. Anderson, P. Bevin, K. Lang, E. Liberty, L. Rhodes & J. Thaler, IMC 2017; Apache DataSketches).
    """

    def __init__(self, bits: int) -> None:
        self._sketch = frequent_items_sketch(bits)
        self.total = 0  # sum of all counts; the sketch loses its own total when merged while no key has a slot

    @staticmethod
    def memory_bytes(bits: int) -> int:
        """Return the most bytes held: the table grows by doubling, so half of it briefly exists twice."""
        return (_SLOT_BYTES << bits) * 3 // 2

    @staticmethod
    def given_bytes(bits: int) -> int:
        """Return the bytes that `above` allocates temporarily."""
        return int(_GIVEN * (_ITEM_BYTES << bits))

    @property
    def num_keys(self) -> int:
        """Number of keys with a slot."""
        return int(self._sketch.num_active_items)

    def add(self, codes: Int64s, counts: Int64s) -> None:
        """Add ``counts`` to the keys; each key costs one Python call, so pass few."""
        update = self._sketch.update
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            update(code, count)
        self.total += int(counts.sum())

    @classmethod
    def merged(cls, bits: int, counted: Iterable[HeavyKeys]) -> Self:
        """Merge several tables into one with the sum of their counts."""
        together = cls(bits)
        for each in counted:
            together._sketch.merge(each._sketch)
            together.total += each.total
        return together

    def above(self, count: int) -> CountedKeys:
        """Return all keys certain to have been counted more than ``count`` times."""
        items = self._sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_POSITIVES, count)
        codes = np.array([item[0] for item in items], np.int64)
        order = np.argsort(codes)
        return CountedKeys(codes[order], np.array([item[1] for item in items], np.int64)[order])


_AHEAD = 64  # places drawn in one call: drawing them one by one would cost more than choosing the tuples


class OneInMany:
    """Sampler that chooses one random tuple out of every ``stride`` consecutive ones.

    All tuples are equally likely to be chosen, and a periodic stream does not bias the sample. The choice does not
    depend on batch boundaries. The caller must not draw from ``random`` itself.
    """

    def __init__(self, stride: int, random: np.random.Generator) -> None:
        self._blocks = stride * np.arange(_AHEAD)
        self._stride = stride
        self._random = random
        self._draw(begin=0)

    @staticmethod
    def memory_bytes(chosen: int) -> int:
        """Return the bytes held, including the temporary ones to choose ``chosen`` tuples."""
        return 4 * 8 * _AHEAD + 2 * 8 * chosen

    def _draw(self, begin: int) -> None:
        """Draw a place in each of the next blocks, which begin ``begin`` tuples from here."""
        self._places = self._blocks + self._random.integers(self._stride, size=_AHEAD)
        self._number = 0  # index of the next place
        self._next = begin + int(self._places[0])  # tuples before the next place
        self._begin = -begin  # position of the next tuple, on the scale of the places

    def choose(self, codes: Int64s) -> Int64s:
        """Return a copy of the chosen codes of a batch."""
        rows = codes.size
        if self._stride == 1:
            return codes.copy()
        if self._next >= rows:
            self._next -= rows
            self._begin += rows
            return codes[:0]
        parts = []
        while self._next < rows:
            end = int(np.searchsorted(self._places, self._begin + rows))
            parts.append(codes[self._places[self._number : end] - self._begin])
            if end == _AHEAD:
                self._draw(begin=_AHEAD * self._stride - self._begin)
            else:
                self._number, self._next = end, int(self._places[end]) - self._begin
        self._next -= rows
        self._begin += rows
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class ThinnedSample:
    """Every n-th added code, at most ``capacity`` of them (an even number); n starts at 1 and doubles when it is full.

    The sample is spread evenly over all added codes, and stays at least half full once it has been full.
    """

    def __init__(self, capacity: int) -> None:
        self._codes = np.empty(capacity, np.int64)
        self._size = 0
        self._added = 0
        self.step = 1

    @staticmethod
    def memory_bytes(capacity: int) -> int:
        """Return the bytes held."""
        return 8 * capacity

    @property
    def codes(self) -> Int64s:
        """The sample, in the order of addition."""
        return self._codes[: self._size]

    def add(self, codes: Int64s) -> None:
        """Add codes, of which every n-th is kept."""
        begin = 0
        while begin < codes.size:
            begin += -(self._added + begin) % self.step
            taken = codes[begin :: self.step][: self._codes.size - self._size]
            self._codes[self._size : self._size + taken.size] = taken
            self._size += taken.size
            begin += taken.size * self.step
            if self._size == self._codes.size:
                self._size //= 2
                self._codes[: self._size] = self._codes[: 2 * self._size : 2].copy()
                self.step *= 2
        self._added += codes.size

    def every(self, step: int) -> Int64s:
        """Return every ``step``-th of the added codes, where ``step`` is a multiple of `self.step`."""
        return self.codes[:: step // self.step]


LEAST_SAMPLES = 512  # for a first estimate; a key with a tenth of the stream then occurs 51 +- 7 times
LEAST_BYTES = 1 << 15
_HEAVY, _GATHERED = 3, 16  # a third of the held bytes is for heavy keys, a sixteenth for samples not yet counted
_MOST_GATHERED = 1 << 12
_SURE = 8  # occurrences among the gathered samples from which a key is surely counted; limits calls to 1 in 8 samples
_COUNTING_BYTES = 8 + 8 + 8 + 20  # per gathered sample: a copy, a draw, a count and, for some, two Python ints
_SOME = _SURE * COUNTED  # count from which a key stands for itself, if rare keys are only sampled


class _Generation:
    """Summary of one stretch of the stream: counts of heavy keys, and a sample of codes from all over it."""

    def __init__(self, bits: int, capacity: int) -> None:
        self.heavy = HeavyKeys(bits)
        self.sample = ThinnedSample(capacity)
        self.samples = 0


class KeySketch:
    """Estimator of the `KeyFrequencies` of a stream, from one random tuple in ``stride`` (`OneInMany`).

    A frequent-items sketch counts the chosen tuples (`HeavyKeys`). For frequent keys it covers many more tuples than
    memory could hold. A `ThinnedSample` of the chosen tuples covers the other keys, by the distribution that fits it
    (`frequencies_of_parts`). Two generations of both follow the stream: each covers half a ``horizon`` of chosen
    tuples, and the older one is dropped when the younger one is full. An estimate therefore uses no tuple older than
    the last ``stride * horizon`` tuples and, once the stream is that long, covers at least 3/8 of these.

    The estimate does not depend on batch boundaries. A tuple takes about 60 ns / ``stride`` on average: keys that occur
    fewer than 8 times among a few thousand samples are thinned out without bias, so at most one Python call is made for
    8 chosen tuples. `memory_bytes` bounds the memory, including the temporary needs of `frequencies`.

    Parameters
    ----------
    num_keys : int
        Number of keys of R.
    nbytes : int
        Memory limit in bytes, at least 32 KiB. With less memory, rare keys are told apart less well.
    stride, horizon : int
        One tuple in ``stride`` is sampled, and the last ``horizon`` samples are remembered.
    seed : int or numpy.random.Generator
        Seed, or a generator for exclusive use. Equal seeds and streams give equal estimates.

    Examples
    --------
    >>> from semistream.datasets import Zipf
    >>> sketch = KeySketch(10**6)
    >>> for keys in np.split(Zipf(1.0, 10**6, seed=7).keys(2_000_000), 10):
    ...     sketch.observe(keys)
    >>> found, exact = sketch.frequencies(), KeyFrequencies.zipf(1.0, 10**6)
    >>> abs(found.share(1000) - exact.share(1000)) < 0.03
    True
    """

    def __init__(
        self,
        num_keys: int,
        *,
        nbytes: int = 1 << 20,
        stride: int = 256,
        horizon: int = 1 << 16,
        seed: int | np.random.Generator = 0,
    ) -> None:
        least = {"num_keys": 1, "nbytes": LEAST_BYTES, "stride": 1, "horizon": 2 * LEAST_SAMPLES}
        given = {"num_keys": num_keys, "nbytes": nbytes, "stride": stride, "horizon": horizon}
        for name, value in given.items():
            if value < least[name]:
                raise InvalidArgument(f"{name} is {value}; give a whole number, at least {least[name]}.")
        self.num_keys = num_keys
        self.stride = stride
        self.horizon = horizon
        held = nbytes // 2 - OneInMany.memory_bytes(0)  # the other half is for temporary needs
        self._bits = LEAST_BITS
        while 2 * HeavyKeys.memory_bytes(self._bits + 1) <= held // _HEAVY:
            self._bits += 1
        gathered = min(held // _GATHERED // 8, _MOST_GATHERED, horizon // 16)
        left = held - 2 * HeavyKeys.memory_bytes(self._bits) - 8 * gathered
        self._capacity = left // (2 * ThinnedSample.memory_bytes(1)) // 2 * 2
        draws, thinning = np.random.default_rng(seed).spawn(2)
        self._chooser = OneInMany(stride, draws)
        self._thinning = thinning
        self._gathered = np.empty(gathered, np.int64)
        self._waiting = 0  # gathered samples not yet counted
        self._older: _Generation | None = None
        self._younger = _Generation(self._bits, self._capacity)

    @property
    def memory_bytes(self) -> int:
        """Most bytes held at any time."""
        gathered, heavy = self._gathered.size, HeavyKeys.memory_bytes(self._bits)
        held = 2 * (heavy + ThinnedSample.memory_bytes(self._capacity)) + 8 * gathered + OneInMany.memory_bytes(0)
        ordered = 8 * (2 * self._capacity + gathered)
        counting = heavy + HeavyKeys.given_bytes(self._bits) + _COUNTING_BYTES * gathered
        return held + max(ordered, counting, FIT_BYTES)

    @property
    def samples(self) -> int:
        """Number of sampled tuples behind an estimate."""
        return sum(generation.samples for generation in self._generations) + self._waiting

    @property
    def _generations(self) -> list[_Generation]:
        return [self._younger] if self._older is None else [self._older, self._younger]

    def observe(self, codes: Int64s) -> None:
        """Sample the key codes of a batch of the stream."""
        at_once = self._gathered.size * self.stride
        for begin in range(0, codes.size, at_once):
            chosen = self._chooser.choose(codes[begin : begin + at_once])
            while chosen.size:
                taken = chosen[: self._gathered.size - self._waiting]
                self._gathered[self._waiting : self._waiting + taken.size] = taken
                self._waiting += taken.size
                chosen = chosen[taken.size :]
                if self._waiting == self._gathered.size:
                    self._count()

    def _count(self) -> None:
        """Add the gathered samples to the younger generation."""
        if self._younger.samples + 2 * self._gathered.size > self.horizon // 2:  # including as many that may still wait
            self._older = self._younger
            self._younger = _Generation(self._bits, self._capacity)
        self._younger.sample.add(self._gathered)
        self._younger.samples += self._gathered.size
        _add_some(self._younger.heavy, self._gathered, self._thinning)
        self._waiting = 0

    def frequencies(self) -> KeyFrequencies | None:
        """Estimate the recent frequencies; None if fewer than 512 tuples have been sampled."""
        samples = self.samples
        if samples < LEAST_SAMPLES:
            return None
        generations, waiting = self._generations, self._gathered[: self._waiting]
        heavy = HeavyKeys.merged(self._bits, [generation.heavy for generation in generations])
        _add_some(heavy, waiting.copy(), np.random.default_rng(samples))
        hottest = heavy.above(min(max(COUNTED, _SURE * samples // self._gathered.size), _SOME))
        del heavy
        step = max(generation.sample.step for generation in generations)
        ordered = np.concatenate([*(generation.sample.every(step) for generation in generations), waiting[::step]])
        ordered.sort()
        tail = Fingerprint.of(ordered, without=hottest.codes)
        del ordered
        return frequencies_of_parts(hottest.counts / samples, tail, self.num_keys)


def _add_some(heavy: HeavyKeys, codes: Int64s, random: np.random.Generator) -> None:
    """Count codes, with an unbiased sample of the rare ones; ``codes`` is sorted and overwritten."""
    codes.sort()
    counts = np.empty(codes.size, np.int64)
    kept = thin_counts(codes, _SURE, random.random(codes.size), codes, counts)
    heavy.add(codes[:kept], counts[:kept])
