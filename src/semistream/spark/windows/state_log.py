"""WindowLog: the durable state of a key partition, in Spark's state store: a snapshot, and what came since.

A window join is deterministic: its state is that of an earlier moment and the rows and watermarks that came since. So a
micro-batch writes its own rows, packed as they came, and what it costs depends on them and not on the window. When the
log has grown as large as the snapshot was, it is replaced by a new snapshot: over time a row is written about twice,
and to restore a partition takes a snapshot and the joining of at most as many bytes.

Each entry bears the stamp of the one before it. An operator that a worker has kept from an earlier micro-batch is found
to be up to date, or some entries behind, or not of this history at all, by its stamp.
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
"""Bytes of a snapshot in one value of the state store."""

LEAST_LOG_BYTES = 1_000_000
"""A log is not replaced by a snapshot before it is so large."""

_END = -1  # as a side: the entry is over, and the watermark moves


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
    """Where a partition stands. Entries ``first`` to ``next`` follow the snapshot, which has ``chunks`` (0: none).

    ``plan`` describes the join as JSON; ``batch`` is the micro-batch that wrote last, ``stamp`` names what it wrote.
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
        """Bytes of the snapshot and of the log."""
        return self.snapshot_bytes + self.log_bytes


@dataclass(frozen=True)
class LogEntry:
    """What came in one micro-batch: packed rows with their sides, then a watermark. ``before`` is the stamp of the
    entry before it."""

    rows: Sequence[tuple[int, bytes]]
    watermark_ms: int
    before: str

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(len(content) for _, content in self.rows)


class WindowLog:
    """Reads and writes the state of the key partition that Spark's handle is set to."""

    def __init__(self, handle: Any) -> None:
        self._header = handle.getValueState("header", _HEADER)
        self._entries = handle.getMapState("log", _ENTRY_KEY, _ENTRY)
        self._chunks = handle.getMapState("snapshot", _CHUNK_KEY, _CHUNK)

    def header(self) -> LogHeader | None:
        """Where the partition stands; None if nothing has come yet."""
        stored = self._header.get()
        return None if stored is None else LogHeader(*stored)

    def snapshot(self, header: LogHeader) -> bytes:
        """The snapshot, of a header that has one."""
        return b"".join(bytes(self._chunks.getValue((part,))[0]) for part in range(header.chunks))

    def entries(self, first: int, end: int) -> Iterator[LogEntry]:
        """Entries by number, up to ``end``."""
        for number in range(first, end):
            rows: list[tuple[int, bytes]] = []
            while True:
                side, content, before, watermark_ms = self._entries.getValue((number, len(rows)))
                if side == _END:
                    yield LogEntry(rows, watermark_ms, before)
                    break
                rows.append((side, bytes(content)))

    def append(self, header: LogHeader, entry: LogEntry, stamp: str, batch: int) -> LogHeader:
        """Write what a micro-batch brought; gives the header behind it."""
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
        """Whether the log would be as large as the snapshot is with this entry."""
        return header.log_bytes + entry.nbytes >= max(header.snapshot_bytes, LEAST_LOG_BYTES)

    def replace(self, header: LogHeader, content: bytes, stamp: str, batch: int) -> LogHeader:
        """Write a snapshot instead of the log, and of the micro-batch's entry; gives the header behind it."""
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
