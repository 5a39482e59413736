"""MatchCounts: f_R, the number of rows of R for each key, within a memory budget.

Counts are stored beside the relation version they belong to. The stored files are a cache: counting R again replaces
them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError, CorruptRelation, InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.kernels.search import positions_of
from semistream.relation import AnyRelation, ParquetRelation, Relation
from semistream.relation.format.manifest import match_counts_name, read_manifest
from semistream.shedding.counting import SLOT_BYTES, KeyCounts, count_anew, count_clustered, count_scattered
from semistream.shedding.kernels import look_up_counts
from semistream.storage.local_files import replace_file

_log = logging.getLogger(__name__)
_FIELDS = b"semistream counts"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


def store_counts(relation: Relation, counted: KeyCounts, slots: int) -> None:
    """Store counts beside their version, unless it already has counts made with at least as much memory.

    Nothing is stored for a part of a relation, or in a folder that is not writable.
    """
    path = relation.path / match_counts_name(relation.manifest)
    if not _is_whole(relation) or _slots_of(path) >= slots:
        return
    fields = {
        "slots": slots,
        "keys": counted.codes.size,
        "bound": counted.bound,
        "unlisted": counted.unlisted,
        "slack": counted.slack,
        "checksum": _checksum(counted),
    }
    table = pa.table({"code": counted.codes, "rows": counted.counts})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata({_FIELDS: json.dumps(fields).encode()})) as writer:
        writer.write_table(table)
    try:
        replace_file(path, sink.getvalue().to_pybytes())
    except OSError as error:
        _log.info("match counts of %s are not stored: %s", relation.path, error)


def load_counts(relation: Relation, version: int, slots: int) -> KeyCounts | None:
    """Load the stored counts of a version, reduced to at most ``slots`` keys; None if there are none.

    Inexact counts made with half of the memory or less are ignored, since counting again would be more precise, and so
    are counts too large to load and reduce. Damaged files are removed.
    """
    if not _is_whole(relation):
        return None
    try:
        manifest = relation.manifest if version == relation.version else read_manifest(relation.path, version)
    except CorruptRelation:
        return None  # vacuumed or damaged: opening that version reports it
    path = relation.path / match_counts_name(manifest)
    try:
        with pa.OSFile(str(path)) as source:
            reader = pa.ipc.open_file(source)
            fields = _fields(reader)
            if fields["keys"] > 2 * slots or (fields["bound"] > 1 and slots >= 2 * fields["slots"]):
                return None
            table = reader.read_all()
        codes, counts = (np.array(table.column(name).to_numpy(), np.int64) for name in ("code", "rows"))
        counted = KeyCounts(codes, counts, fields["bound"], fields["unlisted"], fields["slack"])
        if fields["checksum"] != _checksum(counted):
            raise ValueError("checksum mismatch")
    except FileNotFoundError:
        return None
    except _DAMAGE as error:
        _log.warning("match counts %s are damaged and will be counted again: %s", path, error)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return None
    return counted.fitting(slots)


def _slots_of(path: Path) -> int:
    """Return the number of slots that the stored counts were made with; 0 if there are none."""
    try:
        with pa.OSFile(str(path)) as source:
            return int(_fields(pa.ipc.open_file(source))["slots"])
    except _DAMAGE:
        return 0


def _fields(reader: pa.ipc.RecordBatchFileReader) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((reader.schema.metadata or {})[_FIELDS])
    return fields


def _is_whole(relation: Relation) -> bool:
    """True if the relation has all rows of its version, and is not a part of it."""
    return relation.num_rows == relation.manifest.num_rows


def _checksum(counted: KeyCounts) -> int:
    digest = xxhash.xxh64(f"{counted.bound} {counted.unlisted} {counted.slack}".encode())
    digest.update(np.ascontiguousarray(counted.codes).data)
    digest.update(np.ascontiguousarray(counted.counts).data)
    return int(digest.intdigest())


_BUFFER = "match counts"
LEAST_BYTES = 64 * SLOT_BYTES


@dataclass(frozen=True)
class MatchCounts:
    """Number of rows of one version of R for each key code: the paper's ``f_R``. `MatchCounts.of` counts them.

    If the counts of all keys fit in memory, they are exact. Otherwise the keys with the most rows are listed, and every
    other key has at most `bound` rows. If no key has more than one row, nothing is listed (`unique`).

    A clustered relation is counted in one scan of its key codes, in which the rows of a key are adjacent: listed counts
    are exact, however small the memory. In plain Parquet they may lie anywhere; there, listed counts may be too low by
    up to `slack` (Misra & Gries; see `count_scattered`). After an update, `refreshed` counts only the touched keys.

    The counts are for joins on key equality. The code of a string or of several columns is a hash: if two keys collide,
    each counts the rows of both.

    Parameters
    ----------
    version : int
        Version of R that was counted.
    counted : KeyCounts
        The listed keys and their counts, with the bounds of all others.
    budget : MemoryBudget
        Budget that the counts are charged to, until `release`.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relation = Relation.build(pa.table({"id": [1, 2, 2, 2]}), f"{folder}/r", key="id")
    ...     counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    ...     counts.matches(np.array([2, 1, 9])).tolist(), counts.unique
    ([3, 1, 0], False)

    References
    ----------
    MESH 4.2: "f_R(i) can be derived from the distribution of values in the join attributes of R".
    """

    version: int
    counted: KeyCounts
    budget: MemoryBudget

    @classmethod
    def of(
        cls,
        relation: AnyRelation,
        budget: MemoryBudget,
        *,
        on: Sequence[str] | None = None,
        store: bool = True,
    ) -> MatchCounts:
        """Count the keys of a relation within the free part of ``budget``, and hold at most a quarter of it afterwards.

        While R is read, two buffers of 1 MB (or of its largest page) come on top.

        With ``store``, counts of a clustered relation are stored beside its version and loaded the next time. Counts of
        an earlier version serve too: then only changed keys are counted. ``on`` names the join columns of plain
        Parquet; a clustered relation knows its key.
        """
        if budget.free < LEAST_BYTES:
            raise BudgetError(
                f"match counts got {budget.free} bytes; they need at least {LEAST_BYTES}. Raise their share to that.",
                least_bytes=LEAST_BYTES,
            )
        slots = budget.free // SLOT_BYTES
        with budget.charged(_BUFFER, budget.free):
            if isinstance(relation, ParquetRelation):
                if not on:
                    raise InvalidArgument("on is empty; name the columns of the Parquet files that the stream joins.")
                counted = count_scattered(relation, on, slots)
            else:
                counted = _counted(relation, slots, store)
        return cls._held(relation.version, counted, budget)

    @classmethod
    def _held(cls, version: int, counted: KeyCounts, budget: MemoryBudget) -> MatchCounts:
        budget.charge(_BUFFER, counted.nbytes)
        return cls(version, counted, budget)

    def release(self) -> None:
        """Return the memory to the budget; do not use the counts afterwards."""
        self.budget.release(_BUFFER, self.counted.nbytes)

    def refreshed(self, relation: Relation, *, store: bool = True) -> MatchCounts:
        """Release these counts, and return those of a later version; count only the keys touched by updates.

        If the touched keys are unknown or too many, count all keys.
        """
        if relation.version == self.version:
            return self
        free = self.budget.free
        with self.budget.charged(_BUFFER, free):
            slots = (free + self.counted.nbytes) // SLOT_BYTES
            counted = count_anew(relation, self.version, self.counted, slots)
        self.release()
        if counted is None:
            return MatchCounts.of(relation, self.budget, store=store)
        if store:
            store_counts(relation, counted, slots)
        return self._held(relation.version, counted, self.budget)

    @property
    def unique(self) -> bool:
        """True if no key of R has more than one row; each stream row then gives at most one result."""
        return self.counted.bound <= 1 and not bool(np.any(self.counted.counts > 1)) and self.counted.slack == 0

    @property
    def exact(self) -> bool:
        """True if `matches` is exact for every key."""
        return self.counted.bound == 0 and self.counted.slack == 0

    @property
    def bound(self) -> int:
        """Most rows of an unlisted key; 0 if all keys are listed."""
        return self.counted.bound

    @property
    def slack(self) -> int:
        """Largest possible shortfall of a listed count; 0 for clustered relations."""
        return self.counted.slack

    def matches(self, codes: Int64s) -> Int64s:
        """Return the number of rows for each code: the listed count, or the average of the unlisted keys.

        That average is at least 1, so that a row with possible results never counts as having none: a sample that gives
        such rows no chance cannot be corrected by weights.
        """
        found = np.empty(codes.size, np.int64)
        look_up_counts(codes, self.counted.codes, self.counted.counts, self.counted.unlisted, found)
        return found

    def bounds(self, codes: Int64s) -> tuple[Int64s, Int64s]:
        """Return the least and the most rows that each code can have."""
        present, at = positions_of(codes, self.counted.codes)
        low = np.zeros(codes.size, np.int64)
        high = np.full(codes.size, self.counted.bound, np.int64)
        low[present] = self.counted.counts[at[present]]
        high[present] = low[present] + self.counted.slack
        return low, high


def _counted(relation: Relation, slots: int, store: bool) -> KeyCounts:
    """Load the stored counts, or derive them from those of an earlier version, or count all of R."""
    if not store:
        return count_clustered(relation, slots)
    if (stored := load_counts(relation, relation.version, slots)) is not None:
        return stored
    earlier = [version for version in relation.versions() if version < relation.version]
    counted = None
    for version in reversed(earlier):
        if (older := load_counts(relation, version, slots)) is not None:
            counted = count_anew(relation, version, older, slots)
            break
    if counted is None:
        counted = count_clustered(relation, slots)
    store_counts(relation, counted, slots)
    return counted
