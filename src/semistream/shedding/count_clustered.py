"""Count the keys of a clustered relation: one scan, in which the rows of a key follow each other."""

from __future__ import annotations

import numpy as np

from semistream.kernels.key_counts import KEYS, LISTED, STATE, count_keys, count_touched, end_of_keys
from semistream.kernels.search import positions_of
from semistream.kernels.types import Int64s
from semistream.relation import Relation
from semistream.shedding.counted_keys import SLOT_BYTES, CountedKeys, cut_to

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
