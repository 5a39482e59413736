"""Count the keys of a clustered relation: one scan, in which the rows of a key follow each other.

Count the keys of plain Parquet, where the rows of a key may lie anywhere.

CountedKeys: keys with their numbers of rows, as many as there is room for.
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

SLOT_BYTES = 64  # of a key: 16 at rest, the rest while keys are counted, merged and sorted


@dataclass(frozen=True)
class CountedKeys:
    """Keys by ascending code with their rows; any other key has at most ``bound`` rows.

    Parameters
    ----------
    codes, counts
        The keys that are listed.
    bound
        What keys that are not listed have at most.
    unlisted
        What such a key is taken to have: the average of them, from 1 to ``bound``; 0 if there are none.
    slack
        By how much a count may be too low.
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
    def of(cls, codes: Int64s, counts: Int64s, *, bound: int, rows: int, keys: int) -> CountedKeys:
        """Of ``rows`` of ``keys`` in all, those that are listed; nothing is listed if no key has more than one row."""
        if keys and rows == keys:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, 1, 1)
        others = keys - codes.size
        average = round((rows - int(counts.sum())) / others) if others > 0 else 0
        return cls(codes, counts, bound, min(max(average, 1), bound))

    def fitting(self, slots: int) -> CountedKeys:
        """The same in at most ``slots`` keys: those with the fewest rows go, and the bound rises to what they had."""
        if self.codes.size <= slots:
            return self
        bound = cut_to(self.counts, slots, self.bound)
        stays = self.counts > bound
        unlisted = max(self.unlisted, round(float(self.counts[~stays].mean())), 1)
        return CountedKeys(self.codes[stays], self.counts[stays], bound + self.slack, unlisted, self.slack)


def cut_to(counts: Int64s, slots: int, bound: int) -> int:
    """The least bound, not below the one given, that at most ``slots`` of the counts are above."""
    if counts.size <= slots:
        return bound
    place = counts.size - slots - 1
    return max(int(np.partition(counts, place)[place]), bound)


_RUN_BYTES = 1 << 20


def count_clustered(relation: Relation, slots: int) -> CountedKeys:
    """The rows of each key, in at most ``slots`` keys: all of them, or those with the most rows, exactly.

    Only the key's columns are read. When the slots are full, the half with the fewest rows is dropped, and keys with no
    more rows than those are not listed from there on.
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
    return CountedKeys.of(codes[:listed].copy(), counts[:listed].copy(), bound=bound, rows=rows, keys=int(state[KEYS]))


def _make_room(codes: Int64s, counts: Int64s, state: Int64s, bound: int) -> int:
    """Drop at least half of the keys, those with the fewest rows; gives the most rows that any of them has."""
    bound = cut_to(counts, counts.size // 2, bound)
    stays = counts > bound
    left = int(np.count_nonzero(stays))
    codes[:left], counts[:left] = codes[stays], counts[stays]
    state[LISTED] = left
    return bound


def count_anew(relation: Relation, version: int, older: CountedKeys, slots: int) -> CountedKeys | None:
    """The counts of a later version, from those of ``version``: only keys that updates have touched are counted.

    None if it is not known which those are, or if they do not fit beside the counts. The average of keys that are not
    listed stays what it was; their bound holds for the new version too.
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
    return CountedKeys(codes[order], counts, older.bound, older.unlisted)


def count_scattered(relation: ParquetRelation, on: Sequence[str], slots: int) -> CountedKeys:
    """The rows of each key in at most ``slots`` keys: exact if there are no more keys than a quarter of that.

    Else the frequent ones, with counts that are too low by at most ``slack``, and a key that is not listed has at most
    that many rows: ``slack`` is at most 4 rows / ``slots``. Batch after batch is counted and added; when there are too
    many keys, the count of the first that is too many is taken off all of them, and keys with nothing left go (J. Misra
    & D. Gries, Sci. Comput. Program. 2(2), 1982; P. K. Agarwal et al., Mergeable summaries, PODS 2012). The frequent
    items of DataSketches promise no less error in as many slots, and take a call of Python for each key.
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
        for begin in range(0, found.size, most):  # no more new keys at a time than there is room for
            codes, counts = _merged(codes, counts, *np.unique(found[begin : begin + most], return_counts=True))
            taken = cut_to(counts, most, 0)
            if taken:
                stays = counts > taken
                codes, counts = codes[stays], counts[stays] - taken
                slack += taken
    if slack == 0:
        return CountedKeys.of(codes, counts, bound=0, rows=rows, keys=codes.size)
    return CountedKeys(codes, counts, bound=slack, unlisted=1, slack=slack)


def _merged(codes: Int64s, counts: Int64s, more: Int64s, of_more: Int64s) -> tuple[Int64s, Int64s]:
    """Two lists of keys, each ascending, as one."""
    together = np.concatenate([codes, more])
    distinct, place = np.unique(together, return_inverse=True)
    summed = np.bincount(place, np.concatenate([counts, of_more]), minlength=distinct.size)
    return distinct, summed.astype(np.int64)  # exact up to 2**53 rows
