"""Count the keys of plain Parquet, where the rows of a key may lie anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semistream.errors import ColumnNotFound
from semistream.kernels.types import Int64s
from semistream.keys import KeyCodec
from semistream.relation import ParquetRelation
from semistream.shedding.counted_keys import CountedKeys, cut_to


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
