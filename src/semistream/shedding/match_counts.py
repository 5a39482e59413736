"""MatchCounts: f_R, the number of rows that R has for a key, inside a share of the memory.

Counts kept beside the version of a relation that they are of. They can be made again: none are needed.
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
from semistream.shedding.counting import SLOT_BYTES, CountedKeys, count_anew, count_clustered, count_scattered
from semistream.shedding.kernels import look_up_counts
from semistream.storage.local_files import replace_file

_log = logging.getLogger(__name__)
_FIELDS = b"semistream counts"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


def store_counts(relation: Relation, counted: CountedKeys, slots: int) -> None:
    """Keep counts beside the version that they are of, unless there are some that were made with as much memory.

    A folder that cannot be written to keeps none, nor do parts of a relation.
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
        _log.info("match counts of %s are not kept: %s", relation.path, error)


def load_counts(relation: Relation, version: int, slots: int) -> CountedKeys | None:
    """The counts that were kept of a version, in at most ``slots`` keys; None if there are none.

    Those that were made with half of the memory or less are not taken, as they say less than they could, nor those that
    do not fit the memory to be cut down in it. Damaged ones are removed.
    """
    if not _is_whole(relation):
        return None
    try:
        manifest = relation.manifest if version == relation.version else read_manifest(relation.path, version)
    except CorruptRelation:
        return None  # vacuumed, or damaged: whoever opens that version is told
    path = relation.path / match_counts_name(manifest)
    try:
        with pa.OSFile(str(path)) as source:
            reader = pa.ipc.open_file(source)
            fields = _fields(reader)
            if fields["keys"] > 2 * slots or (fields["bound"] > 1 and slots >= 2 * fields["slots"]):
                return None
            table = reader.read_all()
        codes, counts = (np.array(table.column(name).to_numpy(), np.int64) for name in ("code", "rows"))
        counted = CountedKeys(codes, counts, fields["bound"], fields["unlisted"], fields["slack"])
        if fields["checksum"] != _checksum(counted):
            raise ValueError("they do not match their checksum")
    except FileNotFoundError:
        return None
    except _DAMAGE as error:
        _log.warning("match counts %s are damaged and counted again: %s", path, error)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return None
    return counted.fitting(slots)


def _slots_of(path: Path) -> int:
    """With how much memory the counts there were made; 0 if there are none."""
    try:
        with pa.OSFile(str(path)) as source:
            return int(_fields(pa.ipc.open_file(source))["slots"])
    except _DAMAGE:
        return 0


def _fields(reader: pa.ipc.RecordBatchFileReader) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((reader.schema.metadata or {})[_FIELDS])
    return fields


def _is_whole(relation: Relation) -> bool:
    """Whether it has all rows of its version, and is not a part of it."""
    return relation.num_rows == relation.manifest.num_rows


def _checksum(counted: CountedKeys) -> int:
    digest = xxhash.xxh64(f"{counted.bound} {counted.unlisted} {counted.slack}".encode())
    digest.update(np.ascontiguousarray(counted.codes).data)
    digest.update(np.ascontiguousarray(counted.counts).data)
    return int(digest.intdigest())


_BUFFER = "match counts"
LEAST_BYTES = 64 * SLOT_BYTES


@dataclass(frozen=True)
class MatchCounts:
    """How many rows of one version of R a stream row joins with, by its key code: the paper's ``f_R``.

    If the counts of all keys fit the memory, they are exact. If not, those of the keys with the most rows are kept, and
    every other key has at most `bound` rows. If no key has more than one row, nothing is kept at all: `unique`.

    A clustered relation is counted by one scan of its key codes, in which the rows of a key follow each other: listed
    counts are exact however small the memory is. Plain Parquet holds them anywhere; there, listed counts may be too low
    by up to `slack` (Misra & Gries; see `count_scattered`). After an update `refreshed` counts the touched keys alone.

    It is for joins by equality of the key. A code of strings or of several columns is a hash: should two keys ever
    share one, both have the rows of both.

    MESH 4.2: "f_R(i) can be derived from the distribution of values in the join attributes of R".

    >>> import tempfile, pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relation = Relation.build(pa.table({"id": [1, 2, 2, 2]}), f"{folder}/r", key="id")
    ...     counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    ...     counts.matches(np.array([2, 1, 9])).tolist(), counts.unique
    ([3, 1, 0], False)
    """

    version: int
    counted: CountedKeys
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
        """Count the keys of a relation within what is free in ``budget``; at most a quarter is held afterwards.

        While R is read, two buffers of 1 MB (or of its largest page) come on top.

        Counts of a clustered relation are kept beside its version and found again (``store``), those of an earlier
        version too, so that all but the first time only what has changed is counted. ``on`` names the columns of plain
        Parquet that are joined with; a clustered relation knows its key.
        """
        if budget.free < LEAST_BYTES:
            raise BudgetError(
                f"match counts got {budget.free} bytes; they need at least {LEAST_BYTES}. Raise the share to that.",
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
    def _held(cls, version: int, counted: CountedKeys, budget: MemoryBudget) -> MatchCounts:
        budget.charge(_BUFFER, counted.nbytes)
        return cls(version, counted, budget)

    def release(self) -> None:
        """Give the memory back; the counts are not to be used any more."""
        self.budget.release(_BUFFER, self.counted.nbytes)

    def refreshed(self, relation: Relation, *, store: bool = True) -> MatchCounts:
        """The counts of a later version; these here are released. Only keys that updates have touched are counted.

        If it is not known which those are, or there are too many of them, all keys are counted.
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
        """Whether no key of R has more than one row; each stream row then gives at most one result."""
        return self.counted.bound <= 1 and not bool(np.any(self.counted.counts > 1)) and self.counted.slack == 0

    @property
    def exact(self) -> bool:
        """Whether `matches` is right for every key."""
        return self.counted.bound == 0 and self.counted.slack == 0

    @property
    def bound(self) -> int:
        """A key that is not listed has at most so many rows; 0 if all keys are listed."""
        return self.counted.bound

    @property
    def slack(self) -> int:
        """A listed count is too low by at most that; 0 for clustered relations."""
        return self.counted.slack

    def matches(self, codes: Int64s) -> Int64s:
        """The number of rows for each code: what is listed, else the average of the keys that are not.

        That average is at least 1, so that no row that may have results is taken to have none: a sample in which such
        rows had no chance could not be put right by weights.
        """
        found = np.empty(codes.size, np.int64)
        look_up_counts(codes, self.counted.codes, self.counted.counts, self.counted.unlisted, found)
        return found

    def bounds(self, codes: Int64s) -> tuple[Int64s, Int64s]:
        """The least and the most rows that each code can have."""
        present, at = positions_of(codes, self.counted.codes)
        low = np.zeros(codes.size, np.int64)
        high = np.full(codes.size, self.counted.bound, np.int64)
        low[present] = self.counted.counts[at[present]]
        high[present] = low[present] + self.counted.slack
        return low, high


def _counted(relation: Relation, slots: int, store: bool) -> CountedKeys:
    """Counts as they were stored, or made from those of an earlier version, or from all of R."""
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
