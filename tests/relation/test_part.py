"""A part of a relation: the pages that a range of key codes needs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from semistream.relation import Relation
from tests.relation.row_sets import row_set, scratch_folder


def test_part_covers_every_key_of_its_range() -> None:
    rng = np.random.default_rng(5)
    table = pa.table({"k": rng.integers(-500, 500, 3000), "row": np.arange(3000)})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=1024)
        for first, end in [(None, None), (None, -100), (-100, 37), (37, None), (400, 400), (501, 900), (-7, -6)]:
            part = relation.part(first, end)
            inside = [k for k in range(-500, 500) if (first is None or k >= first) and (end is None or k < end)]
            assert row_set(part.lookup(inside)) == row_set(relation.lookup(inside))
            assert part.num_rows == part.table.rows.sum() <= relation.num_rows
            assert (
                (part.table.last_code >= (first or -501)) & (part.table.first_code < (501 if end is None else end))
            ).all()
            assert part.verify().rows == 3000
        bounds = [None, *relation.table.first_code[5::7].tolist(), None]
        parts = [relation.part(a, b) for a, b in pairwise(bounds)]
        assert set().union(*(part.table.offset.tolist() for part in parts)) == set(relation.table.offset.tolist())


def test_null_keys_are_in_every_part() -> None:
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": [1, 2, None]}), folder / "r", key="k")
        assert [relation.part(100).num_rows, relation.part(None, 0).num_rows] == [1, 1]
        assert relation.part(100).scan().read_all()["k"].to_pylist() == [None]
