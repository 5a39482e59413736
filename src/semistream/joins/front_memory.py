"""How a front stage splits its share of the budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from semistream.joins.row_sizes import fixed_row_bytes, is_regular, row_sizes
from semistream.joins.spec import JoinSpec
from semistream.kernels.page_cuts import cut_pages

_CHUNK_ROWS = 1 << 16  # tuples probed at once: they should stay in the processor's cache
_CHUNK_ROW_BYTES = 64  # a tuple's code, its place in the order, its pair with a cached row, and flags
_LEAST_CHUNK = 32
_BATCH_BYTES = 1 << 20
_WAITING, _COLLECTED = 8, 3  # parts that rows on their way to the cache get one of: those of a pass, if it takes one


@dataclass(frozen=True)
class FrontMemory:
    """The parts, in bytes: for a chunk of tuples, results, checks, rows that wait for the cache, and the cache."""

    chunk_rows: int
    chunk_bytes: int
    staging_bytes: int
    batch_bytes: int
    check_bytes: int
    waiting_bytes: int
    counter_bits: int
    cache_bytes: int

    @classmethod
    def of(cls, nbytes: int, spec: JoinSpec) -> FrontMemory | None:
        """Split ``nbytes``; None if they are too few for anything."""
        eighth = nbytes // 8
        row_bytes = 2 * fixed_row_bytes(spec.stream_schema) + _CHUNK_ROW_BYTES  # those passed on are copied
        chunk_rows = min(eighth // row_bytes, _CHUNK_ROWS)
        if chunk_rows < _LEAST_CHUNK:
            return None
        chunk_bytes = chunk_rows * row_bytes
        staging = min(eighth, 4 * _BATCH_BYTES)
        check = min(eighth, 2 * _BATCH_BYTES) if spec.condition.check else 0
        counter_bits = max((nbytes // 12).bit_length() - 1, 0)
        rest = nbytes - chunk_bytes - staging - check - (1 << counter_bits)
        waiting = rest // (_COLLECTED if spec.condition.computes_codes else _WAITING)
        return cls(
            chunk_rows=chunk_rows,
            chunk_bytes=chunk_bytes,
            staging_bytes=staging,
            batch_bytes=min(staging // 2, _BATCH_BYTES),
            check_bytes=check,
            waiting_bytes=waiting // 2,  # put in order when they go into the cache
            counter_bits=counter_bits,
            cache_bytes=rest - waiting,
        )

    @property
    def held_bytes(self) -> int:
        """All but the results, which are charged as they are made."""
        return (
            self.chunk_bytes + self.check_bytes + 2 * self.waiting_bytes + (1 << self.counter_bits) + self.cache_bytes
        )

    def chunks(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch, as many at a time as a chunk takes; a row that is larger than that stands alone."""
        regular = is_regular(batch.schema)
        for start in range(0, batch.num_rows, self.chunk_rows):
            piece = batch.slice(start, self.chunk_rows)
            if regular:
                yield piece
                continue
            cuts = cut_pages(np.cumsum(row_sizes(piece)), self.chunk_bytes // 2).tolist()
            for begin, end in pairwise([*cuts, piece.num_rows]):
                yield piece.slice(begin, end - begin)

    def too_wide(self, row_bytes: int) -> bool:
        """Whether a stream tuple is too wide for a chunk, a result, or a check."""
        most = min(self.staging_bytes, self.chunk_bytes) // 2
        return row_bytes > (min(most, self.check_bytes // 8) if self.check_bytes else most)

    def worth_rebuilding(self, cached_bytes: int) -> int:
        """Bytes of waiting rows from which the cache, which holds so much, is rebuilt to take them in."""
        return min(cached_bytes // 8, self.waiting_bytes)
