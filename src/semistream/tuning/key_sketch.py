"""KeySketch: how often a stream asks for R's keys, watched while it goes by."""

from __future__ import annotations

import numpy as np

from semistream.kernels.types import Int64s
from semistream.tuning.frequencies import Floats, KeyFrequencies

_COUNTED = 8  # times that a key must come to stand for itself
_LEAST = 1024  # tuples, with fewer nothing is said


def frequencies_of_sample(codes: Int64s, num_keys: int) -> KeyFrequencies:
    """How often each of R's ``num_keys`` is asked for, if these codes are a sample.

    Keys that came often are counted; the others follow a power law with as many different keys as were seen.
    """
    _, counts = np.unique(codes, return_counts=True)
    counts = np.sort(counts)[::-1].astype(np.float64)
    head, tail, tuples = counts[counts >= _COUNTED], counts[counts < _COUNTED], float(counts.sum())
    if not tail.size:
        return KeyFrequencies.counted(head)
    keys = max(num_keys - head.size, tail.size, 1)
    ends = np.unique(np.concatenate([np.arange(1, min(keys, 512) + 1), np.geomspace(1, keys, 400).astype(np.int64)]))
    sizes = np.diff(ends, prepend=0).astype(np.float64)
    middle = head.size + ends - (sizes - 1) / 2
    left = float(tail.sum())

    def law(exponent: float) -> Floats:
        weights = middle**-exponent
        return np.asarray(weights / float(sizes @ weights))

    def distinct(exponent: float) -> float:
        return float(sizes @ -np.expm1(left * np.log1p(-np.minimum(law(exponent), 1 - 1e-12))))

    low, high = 0.0, 4.0
    if distinct(0.0) > tail.size:
        for _ in range(40):
            exponent = (low + high) / 2
            low, high = (exponent, high) if distinct(exponent) > tail.size else (low, exponent)
    probability = np.concatenate([head / tuples, law(low) * left / tuples])
    keys_of = np.concatenate([np.ones(head.size), sizes])
    order = np.argsort(-probability, kind="stable")
    total = float(keys_of @ probability)
    return KeyFrequencies(keys_of[order], probability[order] / total)


class KeySketch:
    """A sample of the last codes in ``nbytes``, of which older ones fade."""

    def __init__(self, num_keys: int, *, nbytes: int) -> None:
        self.num_keys, self.memory_bytes = num_keys, nbytes
        self._codes, self._old = np.empty(0, np.int64), np.empty(0, np.int64)
        self._room = nbytes // 16

    def observe(self, codes: Int64s, rows: int) -> None:
        """See codes of the first tuples of a batch of ``rows``."""
        few = self._codes.size + self._old.size < 4 * _LEAST
        taken = codes[: 4 * _LEAST if few else max(rows // 64, _LEAST // 4)]
        self._codes = np.concatenate([self._codes, taken])
        if self._codes.size > self._room:
            self._old, self._codes = self._codes, np.empty(0, np.int64)

    def frequencies(self) -> KeyFrequencies | None:
        """What is known; None if it is too little."""
        both = np.concatenate([self._old, self._codes])
        return frequencies_of_sample(both, self.num_keys) if both.size >= _LEAST else None
