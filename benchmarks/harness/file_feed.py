"""FileFeed: adds files to a folder at a steady rate of rows."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.workload import stream_batches

_EVERY_S = 0.25
_CONTENTS = 4  # distinct files, used in turn: generating rows would compete with the measured work


class FileFeed:
    """Thread that adds files to a ``folder``, at ``rate`` rows per second, until the ``with`` block ends.

    ``rows`` counts the rows so far, and ``sums`` is the sum of their column ``seq``.
    """

    def __init__(self, folder: Path, keys: int, rate: float) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        per_file = max(int(rate * _EVERY_S), 1)
        self._batches = stream_batches(keys, per_file, _CONTENTS)
        self._encoded = [_encoded(batch) for batch in self._batches]
        self._sums = [sum(batch.column("seq").to_pylist()) for batch in self._batches]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feed", daemon=True)
        self.rows, self.sums, self.files = 0, 0, 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _feed(self) -> None:
        begin = time.monotonic()
        while not self._ending.wait(max(begin + self.files * _EVERY_S - time.monotonic(), 0)):
            turn = self.files % _CONTENTS
            hidden = self._folder / f"_{self.files:06d}.parquet"
            hidden.write_bytes(self._encoded[turn])
            hidden.rename(self._folder / hidden.name[1:])
            self.files += 1
            self.rows += self._batches[turn].num_rows
            self.sums += self._sums[turn]


def _encoded(batch: pa.RecordBatch) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), buffer)
    return buffer.getvalue()
