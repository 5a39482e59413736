"""WindowLog: durable state of a key partition in Spark's state store, a snapshot and the rows since.

A window join is deterministic: an earlier state, plus the rows and watermarks since, give the current one. A
micro-batch therefore writes only its own rows, packed as they came, at a cost that does not depend on the window. When
the log is as large as the snapshot, a new snapshot replaces it. Over time a row is written about twice, and restoring a
partition takes reading a snapshot and joining at most as many bytes.

Each entry has the stamp of the one before it. By its stamp, an operator that a worker kept from an earlier micro-batch
is found to be current or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

CHUNK_BYTES = 8_000_000
"""The most bytes of a snapshot in one value of the state store."""

LEAST_LOG_BYTES = 1_000_000
"""Least size of a log that a snapshot replaces."""

_END = -1  # in place of a side: the end of an entry, with its watermark


def _struct(**fields: Any) -> StructType:
    return StructType([StructField(name, type_()) for name, type_ in fields.items()])


_HEADER = _struct(
    plan=StringType, batch=LongType, first=LongType, next=LongType, stamp=StringType, chunks=IntegerType,
    snapshot_bytes=LongType, log_bytes=LongType,
)  # fmt: skip
_ENTRY_KEY = _struct(number=LongType, part=IntegerType)
_ENTRY = _struct(side=IntegerType, rows=BinaryType, before=StringType, watermark_ms=LongType)
_CHUNK_KEY = _struct(part=IntegerType)
_CHUNK = _struct(content=BinaryType)


@dataclass(frozen=True)
class LogHeader:
    """Header of a partition's log: entries ``first`` to before ``next`` follow a snapshot of ``chunks`` values.

    ``chunks`` is 0 without a snapshot. ``plan`` describes the join as JSON. ``batch`` is the micro-batch that wrote
    last, and ``stamp`` identifies the state that it wrote.
    """

    plan: str
    batch: int = -1
    first: int = 0
    next: int = 0
    stamp: str = ""
    chunks: int = 0
    snapshot_bytes: int = 0
    log_bytes: int = 0

    @property
    def state_bytes(self) -> int:
        """Bytes of the snapshot and the log."""
        return self.snapshot_bytes + self.log_bytes


@dataclass(frozen=True)
class LogEntry:
    """Input of one micro-batch: packed rows with their sides, then a watermark.

    ``before`` is the stamp of the previous entry.
    """

    rows: Sequence[tuple[int, bytes]]
    watermark_ms: int
    before: str

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(len(content) for _, content in self.rows)


class WindowLog:
    """Log of the key partition that Spark's ``handle`` currently points to."""

    def __init__(self, handle: Any) -> None:
        self._header = handle.getValueState("header", _HEADER)
        self._entries = handle.getMapState("log", _ENTRY_KEY, _ENTRY)
        self._chunks = handle.getMapState("snapshot", _CHUNK_KEY, _CHUNK)

    def header(self) -> LogHeader | None:
        """Return the partition's header; None before its first micro-batch."""
        stored = self._header.get()
        return None if stored is None else LogHeader(*stored)

    def snapshot(self, header: LogHeader) -> bytes:
        """Return the snapshot of a header that has one."""
        return b"".join(bytes(self._chunks.getValue((part,))[0]) for part in range(header.chunks))

    def entries(self, first: int, end: int) -> Iterator[LogEntry]:
        """Yield the entries from ``first`` to before ``end``."""
        for number in range(first, end):
            rows: list[tuple[int, bytes]] = []
            while True:
                side, content, before, watermark_ms = self._entries.getValue((number, len(rows)))
                if side == _END:
                    yield LogEntry(rows, watermark_ms, before)
                    break
                rows.append((side, bytes(content)))

    def append(self, header: LogHeader, entry: LogEntry, stamp: str, batch: int) -> LogHeader:
        """Write the entry of a micro-batch; return the new header."""
        for part, (side, content) in enumerate(entry.rows):
            self._entries.updateValue((header.next, part), (side, bytearray(content), None, None))
        self._entries.updateValue((header.next, len(entry.rows)), (_END, None, entry.before, entry.watermark_ms))
        return self._put(
            replace(
                header,
                batch=batch,
                next=header.next + 1,
                stamp=stamp,
                log_bytes=header.log_bytes + entry.nbytes,
            )
        )

    def wants_snapshot(self, header: LogHeader, entry: LogEntry) -> bool:
        """True if, with this entry, the log would be as large as the snapshot."""
        return header.log_bytes + entry.nbytes >= max(header.snapshot_bytes, LEAST_LOG_BYTES)

    def replace(self, header: LogHeader, content: bytes, stamp: str, batch: int) -> LogHeader:
        """Write a snapshot that replaces the log and the micro-batch's own entry; return the new header."""
        chunks = range(0, len(content), CHUNK_BYTES)
        for part, begin in enumerate(chunks):
            self._chunks.updateValue((part,), (bytearray(content[begin : begin + CHUNK_BYTES]),))
        for part in range(len(chunks), header.chunks):
            self._chunks.removeKey((part,))
        if header.next > header.first:
            self._entries.clear()
        return self._put(
            replace(
                header,
                batch=batch,
                first=header.next + 1,
                next=header.next + 1,
                stamp=stamp,
                chunks=len(chunks),
                snapshot_bytes=len(content),
                log_bytes=0,
            )
        )

    def _put(self, header: LogHeader) -> LogHeader:
        self._header.update(astuple(header))
        return header
