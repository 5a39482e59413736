"""KeySketch: how often a stream asks for the keys of R, watched as it goes by, in little memory and time.

HeavyKeys: the keys that a stream asks for most, and how often, in a table that does not grow.

OneInMany: an unbiased sample of a stream, however it is cut into batches.

ThinnedSample: codes spread evenly over a stretch of the stream, however long it gets.
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

LEAST_BITS = 3  # the sketch's own limit
_SLOT_BYTES = 18 + 24  # of the table: pointer, count and state; a Python int in three of four
_ITEM_BYTES = 8 + 72 + 4 * 32 + 2 * 8  # of a key that is given: a tuple of four ints in a list, and what is made of it
_GIVEN = 0.75  # of the slots, that have keys


class CountedKeys(NamedTuple):
    """Key codes, which ascend, and how often each came."""

    codes: Int64s
    counts: Int64s


class HeavyKeys:
    """Counts keys in at most ``2**bits`` slots: a key that came more often than others is not lost.

    A count is too high by at most 3.5 / 2**bits of all that was counted, and far less under skew, where few keys have
    most of it (D. Anderson, P. Bevin, K. Lang, E. Liberty, L. Rhodes & J. Thaler, IMC 2017; Apache DataSketches).
    """

    def __init__(self, bits: int) -> None:
        self._sketch = frequent_items_sketch(bits)
        self.total = 0  # how much was counted; the sketch's own is lost when it is merged while no key has a slot

    @staticmethod
    def memory_bytes(bits: int) -> int:
        """What it may hold. It grows by doubling, so that half as much is there once more for a moment."""
        return (_SLOT_BYTES << bits) * 3 // 2

    @staticmethod
    def given_bytes(bits: int) -> int:
        """What `above` takes for a moment."""
        return int(_GIVEN * (_ITEM_BYTES << bits))

    @property
    def num_keys(self) -> int:
        """How many keys have a slot."""
        return int(self._sketch.num_active_items)

    def add(self, codes: Int64s, counts: Int64s) -> None:
        """Count some keys, each so many times: a call of Python for each, so give few."""
        update = self._sketch.update
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            update(code, count)
        self.total += int(counts.sum())

    @classmethod
    def merged(cls, bits: int, counted: Iterable[HeavyKeys]) -> Self:
        """What several have counted together."""
        together = cls(bits)
        for each in counted:
            together._sketch.merge(each._sketch)
            together.total += each.total
        return together

    def above(self, count: int) -> CountedKeys:
        """All keys that surely came more often than that."""
        items = self._sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_POSITIVES, count)
        codes = np.array([item[0] for item in items], np.int64)
        order = np.argsort(codes)
        return CountedKeys(codes[order], np.array([item[1] for item in items], np.int64)[order])


_AHEAD = 64  # that are drawn at once: a draw by itself would cost more than all that comes after it


class OneInMany:
    """Chooses one tuple, at random, of each ``stride`` in turn.

    All tuples are equally likely to be chosen, and a stream that repeats itself every so many tuples is no trap. Which
    are chosen does not depend on where batches end. ``random`` is drawn from by nobody else.
    """

    def __init__(self, stride: int, random: np.random.Generator) -> None:
        self._blocks = stride * np.arange(_AHEAD)
        self._stride = stride
        self._random = random
        self._draw(begin=0)

    @staticmethod
    def memory_bytes(chosen: int) -> int:
        """What it holds, and what it takes for a moment to choose so many."""
        return 4 * 8 * _AHEAD + 2 * 8 * chosen

    def _draw(self, begin: int) -> None:
        """Choose in the blocks that begin so many tuples from here."""
        self._places = self._blocks + self._random.integers(self._stride, size=_AHEAD)
        self._number = 0  # of the place that is next
        self._next = begin + int(self._places[0])  # tuples before it
        self._begin = -begin  # of the next tuple, counted as the places are

    def choose(self, codes: Int64s) -> Int64s:
        """Those of a batch that are chosen, as a copy."""
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
    """Every n-th code that was added, at most ``capacity``, an even number; n is 1 at first and doubles as need be.

    So all codes are equally likely to be in it, and it is never less than half full once it has been full.
    """

    def __init__(self, capacity: int) -> None:
        self._codes = np.empty(capacity, np.int64)
        self._size = 0
        self._added = 0
        self.step = 1

    @staticmethod
    def memory_bytes(capacity: int) -> int:
        """What it holds."""
        return 8 * capacity

    @property
    def codes(self) -> Int64s:
        """What is in it, in the order in which it was added."""
        return self._codes[: self._size]

    def add(self, codes: Int64s) -> None:
        """Take in some of these codes."""
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
        """Every so many-th of the codes that were added: a multiple of `step`."""
        return self.codes[:: step // self.step]


LEAST_SAMPLES = 512  # before which nothing is said; a key with a tenth of the stream has 50 of them, give or take 7
LEAST_BYTES = 1 << 15
_HEAVY, _GATHERED = 3, 16  # parts of what it holds that heavy keys, and samples not yet counted, get one of
_MOST_GATHERED = 1 << 12
_SURE = 8  # times that a key must come among samples gathered to be counted for sure: so at most 1 in 8 is
_COUNTING_BYTES = 8 + 8 + 8 + 20  # of a sample gathered: a copy, a draw, a count, and for some, two Python ints
_SOME = _SURE * COUNTED  # times that a key must have been counted, if only some were, to stand for itself


class _Generation:
    """What was seen in a stretch of the stream: heavy keys and their counts, and codes from all over it."""

    def __init__(self, bits: int, capacity: int) -> None:
        self.heavy = HeavyKeys(bits)
        self.sample = ThinnedSample(capacity)
        self.samples = 0


class KeySketch:
    """Estimates the `KeyFrequencies` of a stream from one tuple in ``stride``, chosen at random (`OneInMany`).

    Codes that are chosen are counted in a frequent-items sketch (`HeavyKeys`): of keys with a share of the stream that
    can be counted, it remembers many more tuples than could be kept. A `ThinnedSample` of them tells of the other keys,
    by the law that fits it (`frequencies_of_parts`). Two generations of both follow the stream: each takes half a
    ``horizon`` of chosen tuples, and the older is forgotten when the younger is full. So an estimate is of no tuple
    that came more than ``stride * horizon`` tuples before, and of at least 3/8 as many if there were.

    How the stream is cut into batches makes no difference. A tuple takes some 60 ns / ``stride`` on average: of codes
    that come less than 8 times among a few thousand, only some are counted, for the others, so that no more than one
    in 8 chosen tuples is a call of Python. `memory_bytes` is what it takes at most, with what `frequencies` takes for a
    moment.

    Parameters
    ----------
    num_keys
        How many keys R has.
    nbytes
        What it may take: from 32 kB on. With less, rarer keys are told apart less well.
    stride, horizon
        One tuple of so many is looked at, and so many of these are remembered.
    seed
        A number or a generator, which then is its own: equal seeds and streams make equal estimates.

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
                raise InvalidArgument(f"{name} is {value}; give a whole number from {least[name]} on.")
        self.num_keys = num_keys
        self.stride = stride
        self.horizon = horizon
        held = nbytes // 2 - OneInMany.memory_bytes(0)  # what else it takes, it takes for a moment
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
        self._waiting = 0  # of these, that are not counted yet
        self._older: _Generation | None = None
        self._younger = _Generation(self._bits, self._capacity)

    @property
    def memory_bytes(self) -> int:
        """What it takes at most, from the beginning to the end."""
        gathered, heavy = self._gathered.size, HeavyKeys.memory_bytes(self._bits)
        held = 2 * (heavy + ThinnedSample.memory_bytes(self._capacity)) + 8 * gathered + OneInMany.memory_bytes(0)
        ordered = 8 * (2 * self._capacity + gathered)
        counting = heavy + HeavyKeys.given_bytes(self._bits) + _COUNTING_BYTES * gathered
        return held + max(ordered, counting, FIT_BYTES)

    @property
    def samples(self) -> int:
        """How many tuples an estimate is from."""
        return sum(generation.samples for generation in self._generations) + self._waiting

    @property
    def _generations(self) -> list[_Generation]:
        return [self._younger] if self._older is None else [self._older, self._younger]

    def observe(self, codes: Int64s) -> None:
        """Watch the key codes of a batch of the stream."""
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
        """Let the samples that were gathered be part of the younger generation."""
        if self._younger.samples + 2 * self._gathered.size > self.horizon // 2:  # and as many that wait
            self._older = self._younger
            self._younger = _Generation(self._bits, self._capacity)
        self._younger.sample.add(self._gathered)
        self._younger.samples += self._gathered.size
        _add_some(self._younger.heavy, self._gathered, self._thinning)
        self._waiting = 0

    def frequencies(self) -> KeyFrequencies | None:
        """The frequencies of late; None if fewer than 512 tuples were chosen."""
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
    """Count codes, of those that came seldom only some, for the others; they are put in order, and written over."""
    codes.sort()
    counts = np.empty(codes.size, np.int64)
    kept = thin_counts(codes, _SURE, random.random(codes.size), codes, counts)
    heavy.add(codes[:kept], counts[:kept])
