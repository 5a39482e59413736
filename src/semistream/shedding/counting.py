"""Count the rows of each key of a relation, in bounded memory.

`count_clustered` scans a clustered relation, where the rows of a key are adjacent, and `count_anew` updates its counts
after a change. `count_scattered` counts plain Parquet, where the rows of a key may lie anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semistream.errors import ColumnNotFound
from semistream.kernels.array_types import Int64s
from semistream.kernels.search import positions_of
from semistream.keys import KeyCodec
from semistream.relation import ParquetRelation, Relation
from semistream.shedding.kernels import KEYS, LISTED, STATE, count_keys, count_touched, end_of_keys

SLOT_BYTES = 64  # for each key: 16 at rest, the others while keys are counted, merged and sorted


@dataclass(frozen=True)
class KeyCounts:
    """Row counts of the listed keys, by ascending code; any other key has at most ``bound`` rows.

    Parameters
    ----------
    codes, counts
        Codes and row counts of the listed keys.
    bound
        Most rows of an unlisted key.
    unlisted
        Assumed rows of an unlisted key: their average, from 1 to ``bound``; 0 if there are none.
    slack
        Largest possible shortfall of a count.
    """

    codes: Int64s
    counts: Int64s
    bound: int
    unlisted: int
    slack: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.codes.nbytes + self.counts.nbytes

    @classmethod
    def of(cls, codes: Int64s, counts: Int64s, *, bound: int, rows: int, keys: int) -> KeyCounts:
        """Build the counts of a relation with ``rows`` rows and ``keys`` keys; list none if every key has one row."""
        if keys and rows == keys:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, 1, 1)
        others = keys - codes.size
        average = round((rows - int(counts.sum())) / others) if others > 0 else 0
        return cls(codes, counts, bound, min(max(average, 1), bound))

    def fitting(self, slots: int) -> KeyCounts:
        """Reduce the counts to ``slots`` keys: drop those with the fewest rows, and raise the bound to theirs."""
        if self.codes.size <= slots:
            return self
        bound = cut_to(self.counts, slots, self.bound)
        stays = self.counts > bound
        unlisted = max(self.unlisted, round(float(self.counts[~stays].mean())), 1)
        return KeyCounts(self.codes[stays], self.counts[stays], bound + self.slack, unlisted, self.slack)


def cut_to(counts: Int64s, slots: int, bound: int) -> int:
    """Return the least bound, at or above the one given, that at most ``slots`` of the counts exceed."""
    if counts.size <= slots:
        return bound
    place = counts.size - slots - 1
    return max(int(np.partition(counts, place)[place]), bound)


_RUN_BYTES = 1 << 20


def count_clustered(relation: Relation, slots: int) -> KeyCounts:
    """Count the rows of each key, exactly; list all keys, or those with the most rows, in at most ``slots``.

    Only the key columns are read. When the slots are full, the half with the fewest rows is dropped, and from then on
    only keys with more rows than the dropped ones are listed.
    """
    relation = relation.reading(relation.key)
    codes, counts = np.empty(slots, np.int64), np.empty(slots, np.int64)
    state = np.zeros(STATE, np.int64)
    bound = 0
    for run in relation.read_pages(np.arange(relation.num_pages), run_bytes=_RUN_BYTES):
        while not count_keys(run.words, run.code_starts, run.rows, bound, state, codes, counts):
            bound = _make_room(codes, counts, state, bound)
    if state[LISTED] == slots:
        bound = _make_room(codes, counts, state, bound)
    end_of_keys(bound, state, codes, counts)
    listed = int(state[LISTED])
    rows = relation.num_rows - relation.null_key_rows
    return KeyCounts.of(codes[:listed].copy(), counts[:listed].copy(), bound=bound, rows=rows, keys=int(state[KEYS]))


def _make_room(codes: Int64s, counts: Int64s, state: Int64s, bound: int) -> int:
    """Drop at least half of the keys, those with the fewest rows, and return the most rows of a dropped key."""
    bound = cut_to(counts, counts.size // 2, bound)
    stays = counts > bound
    left = int(np.count_nonzero(stays))
    codes[:left], counts[:left] = codes[stays], counts[stays]
    state[LISTED] = left
    return bound


def count_anew(relation: Relation, version: int, older: KeyCounts, slots: int) -> KeyCounts | None:
    """Derive the counts of a later version from those of ``version``, by counting only the keys touched by updates.

    Return None if the touched keys are unknown, or do not fit beside the counts. The average of the unlisted keys is
    carried over; their bound holds for the new version too.
    """
    touched = relation.changes_since(version, most_bytes=max(slots * SLOT_BYTES - 2 * older.nbytes, 0))
    if touched is None or older.codes.size + touched.size > slots:
        return None
    found = np.zeros(touched.size, np.int64)
    narrow = relation.reading(relation.key)
    for run in narrow.read_pages(np.flatnonzero(narrow.table.pages_holding(touched)), run_bytes=_RUN_BYTES):
        count_touched(run.words, run.code_starts, run.rows, touched, found)
    stays = ~positions_of(older.codes, touched)[0]
    listed = found > older.bound
    codes = np.concatenate([older.codes[stays], touched[listed]])
    order = np.argsort(codes)
    counts = np.concatenate([older.counts[stays], found[listed]])[order]
    return KeyCounts(codes[order], counts, older.bound, older.unlisted)


def count_scattered(relation: ParquetRelation, on: Sequence[str], slots: int) -> KeyCounts:
    """Count the rows of each key in ``slots`` slots: exactly if there are at most ``slots`` / 4 keys.

    Otherwise list the frequent keys, with counts too low by at most ``slack``; an unlisted key has at most ``slack``
    rows, and ``slack`` is at most 4 rows / ``slots``. Batches are counted and added one by one. When there are too many
    keys, the count of the largest one without a place is subtracted from all, and keys with nothing left are dropped
    (J. Misra & D. Gries, Sci. Comput. Program. 2(2), 1982; P. K. Agarwal et al., Mergeable summaries, PODS 2012). The
    frequent items sketch of DataSketches promises no smaller error in as many slots, and needs a Python call per key.
    """
    names = relation.schema.names
    for name in on:
        if name not in names:
            raise ColumnNotFound(name, names, where=f"relation {relation.path}")
    codec = KeyCodec.of(on, [relation.schema.field(name).type for name in on])
    codes = counts = np.empty(0, np.int64)
    rows = slack = 0
    most = max(slots // 4, 1)
    for batch in relation.scan(list(on)):
        found, possible = codec.encode([batch.column(name) for name in on])
        found = found if possible is None else found[possible]
        rows += found.size
        for begin in range(0, found.size, most):  # bounds the number of new keys at a time
            codes, counts = _merged(codes, counts, *np.unique(found[begin : begin + most], return_counts=True))
            taken = cut_to(counts, most, 0)
            if taken:
                stays = counts > taken
                codes, counts = codes[stays], counts[stays] - taken
                slack += taken
    if slack == 0:
        return KeyCounts.of(codes, counts, bound=0, rows=rows, keys=codes.size)
    return KeyCounts(codes, counts, bound=slack, unlisted=1, slack=slack)


def _merged(codes: Int64s, counts: Int64s, more: Int64s, of_more: Int64s) -> tuple[Int64s, Int64s]:
    """Merge two ascending lists of keys with their counts."""
    together = np.concatenate([codes, more])
    distinct, place = np.unique(together, return_inverse=True)
    summed = np.bincount(place, np.concatenate([counts, of_more]), minlength=distinct.size)
    return distinct, summed.astype(np.int64)  # exact up to 2**53 rows
