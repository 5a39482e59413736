"""Cutting R into parts, and finding the part of a row."""

import numpy as np
import pyarrow as pa
import pytest

from semistream.relation import Relation

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from semistream.pipelines.plan.key_ranges import cut_codes, part_bounds, split_rows


def build(tmp_path, keys):
    return Relation.build(pa.table({"k": keys, "v": keys}), tmp_path / "r", key="k", page_bytes=1024)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 50])
def test_parts_hold_about_equal_bytes_and_every_row(tmp_path, parts):
    relation = build(tmp_path, range(-1000, 1000))
    cuts = cut_codes(relation, parts)
    wanted = min(parts, relation.num_pages)
    assert wanted - 1 <= len(cuts) + 1 <= wanted
    pieces = [relation.part(*part_bounds(cuts, part)) for part in range(len(cuts) + 1)]
    assert sum(piece.num_pages for piece in pieces) == relation.num_pages
    assert max(piece.nbytes for piece in pieces) <= relation.nbytes / wanted + relation.table.nbytes.max()


def test_one_key_over_many_pages_is_not_divided(tmp_path):
    relation = build(tmp_path, [5] * 1000)
    assert relation.num_pages > 4
    assert cut_codes(relation, 4) == ()


def test_a_relation_without_pages_is_not_divided(tmp_path):
    assert cut_codes(build(tmp_path, pa.array([], pa.int64())), 4) == ()


def test_rows_are_split_by_their_codes_wherever_they_come_from(tmp_path):
    relation = build(tmp_path, range(100))
    batch = pa.record_batch({"s": pa.array([5, None, 10, 40, 9, 20])})
    found = {part: piece["s"].to_pylist() for part, piece in split_rows(batch, ("s",), relation.codec, (10, 20), 0)}
    assert found == {0: [5, None, 9], 1: [10], 2: [40, 20]}


def test_rows_that_match_nothing_stay_where_the_others_are(tmp_path):
    relation = build(tmp_path, range(100))
    nulls = pa.record_batch({"s": pa.nulls(3, pa.int64())})
    assert [part for part, _ in split_rows(nulls, ("s",), relation.codec, (10, 20), 2)] == [2]
    mixed = pa.record_batch({"s": pa.array([None, 15, None])})
    assert [(p, b.num_rows) for p, b in split_rows(mixed, ("s",), relation.codec, (10, 20), 0)] == [(1, 3)]


def test_a_border_page_that_two_parts_share_is_in_both(tmp_path):
    keys = np.repeat(np.arange(40), 30)
    relation = build(tmp_path, keys)
    cuts = cut_codes(relation, 5)
    for part in range(len(cuts) + 1):
        first, end = part_bounds(cuts, part)
        own = [k for k in range(40) if (first is None or k >= first) and (end is None or k < end)]
        assert relation.part(first, end).lookup(own).num_rows == 30 * len(own)
