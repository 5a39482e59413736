"""StreamWatch: which keys a stream asks for how often, as it goes by, and whether that has changed."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.key_sketch import LEAST_BYTES, KeySketch
from semistream.costs.sampled_frequencies import frequencies_of_sample
from semistream.joins.condition.condition import Condition
from semistream.kernels.array_types import Int64s

_LEAST_STRIDE, _MOST_STRIDE = 8, 128  # one tuple in so many has its code made,
_SEEN = 2048  # so that not many more of a batch have
_OFFSET = 7  # by which the first of them moves on from batch to batch
_FIRST_SAMPLE = 32  # bytes of memory for each tuple of the first batch that is looked at
_LEAST_FIRST = 512  # tuples, of which the first batch must have so many to be looked at
_COMPARED = 4096  # codes, whose number of different ones is compared with what is expected
_UNLIKELY = 0.2  # of that number, by which it must be off for the stream to have changed,
_CHANCE = 5.0  # and times its root: chance does with less
_SHARE, _MOST_SHARE = 128, 64  # one part in so many of a memory, and of a small one at most
_MOST_BYTES = 256 << 10  # that are of use
BRIEF_BYTES = 24 << 10
"""What a watch without a sketch takes for a moment: codes of a batch, in order, and the fit of their tail."""
_BRIEF_SAMPLE = 768  # codes that it looks at


class StreamWatch:
    """A sketch of the keys that a stream asks for (`KeySketch`), in ``nbytes``; if these are 0, no sketch.

    What it says is first from a sample of one batch, then from the sketch, which follows the stream slowly. A sudden
    change shows in how many different keys come in a thousand tuples: if these are not as many as what it said before
    makes likely, it forgets what it has seen. In a small memory a sketch would take more than it is worth: there
    everything is said of the batch at hand, and for that moment `BRIEF_BYTES` must be free.
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
        """What of a memory a sketch should have; 0 if that is too little for one."""
        nbytes = min(max(memory_bytes // _SHARE, LEAST_BYTES), _MOST_BYTES)
        return nbytes if nbytes <= memory_bytes // _MOST_SHARE else 0

    def _forget(self) -> None:
        self._sketch = KeySketch(self._num_keys, nbytes=self.nbytes, stride=1) if self.nbytes else None
        self._said: KeyFrequencies | None = None
        self._compared = np.empty(0, np.int64)

    def see(self, batch: pa.RecordBatch) -> bool:
        """Watch a batch; gives whether the stream has changed since something was said of it."""
        least = _LEAST_STRIDE if self._sketch is not None else -(-batch.num_rows // self._sampled)
        codes = self._codes(batch, max(min(batch.num_rows // _SEEN, _MOST_STRIDE), least))
        changed = self._said is not None and not self._is_likely(codes, self._said)
        if changed:
            self._forget()
        if self._sketch is not None:
            self._sketch.observe(codes)
        return changed

    def frequencies(self, batch: pa.RecordBatch) -> KeyFrequencies | None:
        """How often keys are asked for, in the batch at hand if little else is known; None if it is too small."""
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
        """The codes of one tuple in so many, from anywhere in the batch: it may be in the order of its keys."""
        self._batches += 1
        rows = np.arange(self._batches * _OFFSET % min(stride, batch.num_rows), batch.num_rows, stride)
        return self._condition.ranges(batch.select(self._keys).take(pa.array(rows))).asked
