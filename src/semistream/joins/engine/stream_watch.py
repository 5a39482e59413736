"""StreamWatch: estimates the key frequencies of a stream as it passes, and detects sudden changes."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.key_sketch import LEAST_BYTES, KeySketch
from semistream.costs.sampled_frequencies import frequencies_of_sample
from semistream.joins.condition.condition import Condition
from semistream.kernels.array_types import Int64s

_LEAST_STRIDE, _MOST_STRIDE = 8, 128  # one tuple in 8 to 128 is sampled,
_SEEN = 2048  # or about this number of a batch
_OFFSET = 7  # shift of the first sampled tuple from batch to batch
_FIRST_SAMPLE = 32  # bytes of memory per tuple sampled from a single batch
_LEAST_FIRST = 512  # fewest tuples of a single batch to estimate frequencies from
_COMPARED = 4096  # codes whose number of distinct values is compared with the expected one
_UNLIKELY = 0.2  # relative deviation of that number above which the stream has changed,
_CHANCE = 5.0  # if the deviation also exceeds 5 times the square root of the number: chance explains less
_SHARE, _MOST_SHARE = 128, 64  # a sketch takes 1/128 of the memory, and at most 1/64 of a small memory
_MOST_BYTES = 256 << 10  # of a sketch: more are of no use
BRIEF_BYTES = 24 << 10
"""Bytes that a watch without a sketch needs temporarily: the sorted codes of a batch, and the fit of their tail."""
_BRIEF_SAMPLE = 768  # codes sampled without a sketch


class StreamWatch:
    """Estimator of a stream's key frequencies, with a `KeySketch` of ``nbytes``; 0 means no sketch.

    The first estimate is from a sample of one batch, later ones from the sketch, which follows the stream slowly. A
    sudden change shows in the number of distinct keys among some thousand tuples: if it is unlikely under the last
    estimate, the watch forgets everything it has seen. In a small memory a sketch costs more than it gains. There every
    estimate is from the current batch, and needs `BRIEF_BYTES` of free memory for a moment.
    """

    def __init__(self, condition: Condition, num_keys: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self._sampled = max(nbytes // _FIRST_SAMPLE, _BRIEF_SAMPLE)
        self._together = _COMPARED if nbytes else _BRIEF_SAMPLE
        self._condition = condition
        self._keys = list(dict.fromkeys(condition.stream_keys))
        self._num_keys = max(num_keys, 1)
        self._batches = 0
        self._forget()

    @staticmethod
    def affordable_bytes(memory_bytes: int) -> int:
        """Return the bytes that a sketch should take of ``memory_bytes``; 0 if they are too few for one."""
        nbytes = min(max(memory_bytes // _SHARE, LEAST_BYTES), _MOST_BYTES)
        return nbytes if nbytes <= memory_bytes // _MOST_SHARE else 0

    def _forget(self) -> None:
        self._sketch = KeySketch(self._num_keys, nbytes=self.nbytes, stride=1) if self.nbytes else None
        self._said: KeyFrequencies | None = None
        self._compared = np.empty(0, np.int64)

    def see(self, batch: pa.RecordBatch) -> bool:
        """Watch a batch; return True if the stream has changed since the last estimate."""
        least = _LEAST_STRIDE if self._sketch is not None else -(-batch.num_rows // self._sampled)
        codes = self._codes(batch, max(min(batch.num_rows // _SEEN, _MOST_STRIDE), least))
        changed = self._said is not None and not self._is_likely(codes, self._said)
        if changed:
            self._forget()
        if self._sketch is not None:
            self._sketch.observe(codes)
        return changed

    def frequencies(self, batch: pa.RecordBatch) -> KeyFrequencies | None:
        """Return the estimated frequencies, from ``batch`` if the sketch knows too little; None if it is too small."""
        found = None if self._sketch is None else self._sketch.frequencies()
        if found is None and batch.num_rows >= _LEAST_FIRST:
            codes = self._codes(batch, -(-batch.num_rows // self._sampled))
            found = frequencies_of_sample(codes, self._num_keys) if codes.size else None
        self._said = found
        return found

    def _is_likely(self, codes: Int64s, said: KeyFrequencies) -> bool:
        self._compared = np.concatenate([self._compared, codes[: self._together]])
        if self._compared.size < self._together:
            return True
        tuples, distinct = self._compared.size, 1 + int(np.count_nonzero(np.diff(np.sort(self._compared))))
        self._compared = np.empty(0, np.int64)
        expected = said.distinct(tuples)
        return abs(distinct - expected) <= max(_UNLIKELY * expected, _CHANCE * math.sqrt(expected))

    def _codes(self, batch: pa.RecordBatch, stride: int) -> Int64s:
        """Return the codes of every ``stride``-th tuple, spread over the whole batch, which may be sorted by key."""
        self._batches += 1
        rows = np.arange(self._batches * _OFFSET % min(stride, batch.num_rows), batch.num_rows, stride)
        return self._condition.ranges(batch.select(self._keys).take(pa.array(rows))).asked
