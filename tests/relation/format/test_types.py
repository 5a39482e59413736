"""Every Arrow type comes back unchanged, as payload and as key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream
from semistream.keys import KeyCodec
from semistream.relation import Relation
from tests.relation.arrow_samples import ENCODED, NESTED, PLAIN, UNIONS, comparable
from tests.relation.row_sets import row_set, scratch_folder

ROWS = 150
PAYLOADS = PLAIN | NESTED | UNIONS


def _shuffled(sample: pa.Array) -> pa.Table:
    """The sample's values again and again beside distinct keys, in no order, as slices that start mid-buffer."""
    rng = np.random.default_rng(7)
    tiled = sample.take(pa.array(np.arange(ROWS + 5) % len(sample)))
    table = pa.table({"v": tiled, "k": rng.permutation(ROWS + 5), "w": tiled})
    return pa.concat_tables([table.slice(3, 60), table.slice(63, ROWS - 60)])


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_of_every_type_survives_build_scan_lookup_and_update(name: str) -> None:
    table = _shuffled(PAYLOADS[name])
    expected = table.sort_by("k")
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=4096)
        assert relation.schema == table.schema
        scanned = relation.scan().read_all()
        found = relation.lookup(expected["k"])
        updated = relation.update(upserts=table.slice(10, 20), deletes=expected["k"].slice(0, 1))
        assert updated.verify().rows == ROWS - (expected["k"][0] not in table["k"].slice(10, 20))
        for result, wanted in (
            (scanned, expected),
            (found, expected),
            (updated.lookup(expected["k"][5:]), expected[5:]),
        ):
            result.validate(full=True)
            assert result.schema.equals(wanted.schema)
            for column in ("k", "v", "w"):
                if name in UNIONS:  # Arrow compares values that the type codes hide
                    assert result[column].to_pylist() == wanted[column].to_pylist(), (name, column)
                else:
                    assert comparable(result[column]).equals(comparable(wanted[column])), (name, column)


@pytest.mark.parametrize("name", ENCODED)
def test_encoded_types_are_stored_as_plain_values(name: str) -> None:
    given, kept = ENCODED[name]
    with scratch_folder() as folder:
        keys = np.arange(len(given))[::-1]
        relation = Relation.build(pa.table({"k": keys, "v": given}), folder / "r", key="k")
        assert relation.schema.field("v").type == kept.type
        for rows in (relation.scan().read_all(), relation.lookup(keys)):
            assert rows["v"].to_pylist() == kept.to_pylist()[::-1]
        again = relation.update(upserts=pa.table({"k": keys, "v": given}))
        assert row_set(again.scan()) == row_set(relation.scan())


KEYS = {name: sample for name, sample in PLAIN.items() if name not in ("null", "month_day_nano_interval")}


@pytest.mark.parametrize("name", KEYS)
def test_key_of_every_type_is_found_and_its_nulls_are_kept(name: str) -> None:
    values = pa.concat_arrays([KEYS[name], KEYS[name]])  # every key twice
    table = pa.table({"k": values, "row": np.arange(len(values))})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=512)
        assert relation.null_key_rows == values.null_count
        assert relation.verify().rows == relation.num_rows == len(values)
        assert sorted(relation.scan(["row"]).read_all()["row"].to_pylist()) == list(range(len(values)))
        codec = KeyCodec.of(["k"], [values.type])
        for row in range(len(values)):
            asked = values.slice(row, 1)
            found = relation.lookup(asked, ["row"])["row"].to_pylist()
            same = codec.equal([pa.concat_arrays([asked] * len(values))], [values])
            assert sorted(found) == np.flatnonzero(same).tolist(), (name, asked)


def test_scan_is_in_the_order_of_ordered_keys() -> None:
    values = np.random.default_rng(1).normal(size=500)
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": values}), folder / "r", key="k", page_bytes=1024)
        assert relation.scan().read_all()["k"].to_pylist() == sorted(values.tolist())


@pytest.mark.parametrize("columns", [0, 1, 200])
def test_any_number_of_columns_beside_the_key(columns: int) -> None:
    table = pa.table({"k": np.arange(40)[::-1], **{f"c{i}": np.arange(40) + i for i in range(columns)}})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=64 << 10)
        assert relation.scan().read_all().equals(table.sort_by("k"))
        assert relation.lookup([3, 5]).equals(table.sort_by("k").take([3, 5]))


def test_scan_gives_the_columns_asked_for_in_that_order() -> None:
    table = pa.table({"k": [2, 1], "a": ["x", None], "b": [0.5, 1.5]})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k")
        assert relation.scan(["b", "k"]).read_all().to_pydict() == {"b": [1.5, 0.5], "k": [1, 2]}
        assert relation.lookup([2], ["a"]).to_pydict() == {"a": ["x"]}
        assert relation.scan([]).read_all().num_rows == 2


@pytest.mark.parametrize("key", [["key", ""], "key", "_key_code", "__key_code"])
def test_column_names_may_be_anything(key: str | list[str]) -> None:
    names = ["", "c0", 'a"b', "select", "KEY", "key", "ключ", "a.b", "_key_code", "__key_code"]
    table = pa.table([pa.array([i, i + 10]) for i in range(len(names))], names=names)
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key=key, column_groups=[["key", "select"], ["_key_code", "c0"]])
        assert row_set(relation.scan()) == row_set(table)
        assert relation.reading(["_key_code"]).scan(["_key_code"]).read_all()["_key_code"].to_pylist() == [8, 18]
        words = table.set_column(5, "key", pa.array(["a", None]))
        relation = relation.build(words, folder / "w", key="key")
        assert row_set(relation.update(upserts=words.slice(0, 1)).scan()) == row_set(words)
        stream = pa.table({"s": ["a"], "_key_code": ["x"]})
        terms: dict[str, Any] = {"on": {"s": "key"}, "columns": ["_key_code", "__key_code"], "memory": "1MB"}
        joined = semistream.join(stream, relation, **terms).read_all()
        assert joined.to_pylist() == [{"s": "a", "_key_code": "x", "_key_code_right": 8, "__key_code": 9}]
        pq.write_table(words, folder / "w.parquet")
        terms |= {"operator": "mesh", "memory": "8MB"}
        assert semistream.join(stream, str(folder / "w.parquet"), **terms).read_all() == joined


def test_fields_keep_their_metadata_and_nullability() -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string(), metadata={"unit": "m"})])
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": [1], "v": ["x"]}, schema=schema), folder / "r", key="k")
        assert relation.schema.equals(schema, check_metadata=True)
        assert relation.scan().read_all().schema.field("k").nullable is False
