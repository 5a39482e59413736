"""KeySketch: how often a stream asks for the keys of R, watched as it goes by, in little memory and time."""

from __future__ import annotations

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.fingerprint import thin_counts
from semistream.kernels.types import Int64s
from semistream.tuning.frequencies import KeyFrequencies
from semistream.tuning.heavy_keys import LEAST_BITS, HeavyKeys
from semistream.tuning.one_in_many import OneInMany
from semistream.tuning.sampled_frequencies import COUNTED, frequencies_of_parts
from semistream.tuning.tail_fit import FIT_BYTES, Fingerprint
from semistream.tuning.thinned_sample import ThinnedSample

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
    >>> from semistream.streams import Zipf
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
