"""Looking keys up: the rows that brute force finds, from the pages that may hold them and no others."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import ColumnNotFound, InvalidArgument, KeyTypeError
from semistream.keys import KeyCodec
from semistream.relation import Relation, SimulatedDisk
from tests.relation.row_sets import row_set, scratch_folder

NUMBERS = st.one_of(st.integers(-20, 20), st.sampled_from([-(2**63), 2**63 - 1]), st.none())
WORDS = st.one_of(st.text("ab", max_size=3), st.none())
SETTINGS = settings(max_examples=30, deadline=None)


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch_folder() as path:
        yield path


def _table(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.Table:
    schema = pa.schema([*types.items(), ("row", pa.int64())])
    return pa.Table.from_pylist([{**row, "row": i} for i, row in enumerate(rows)], schema=schema)


def _expected(table: pa.Table, key: list[str], asked: list[tuple[Any, ...]]) -> Any:
    wanted = {values for values in asked if None not in values}
    return row_set([row for row in table.to_pylist() if tuple(row[name] for name in key) in wanted])


@SETTINGS
@given(st.lists(NUMBERS, max_size=80), st.lists(NUMBERS, max_size=20), st.sampled_from([512, 4096]))
def test_numbers(rows: list[int | None], asked: list[int | None], page_bytes: int) -> None:
    table = _table([{"k": k} for k in rows], k=pa.int64())
    with scratch_folder() as path:
        relation = Relation.build(table, path / "r", key="k", page_bytes=page_bytes)
        assert row_set(relation.lookup(asked)) == _expected(table, ["k"], [(k,) for k in asked])
        assert row_set(relation.lookup(pa.chunked_array([asked, asked], pa.int64()))) == row_set(relation.lookup(asked))


@SETTINGS
@given(st.lists(WORDS, max_size=80), st.lists(WORDS, max_size=20), st.sampled_from([pa.string(), pa.large_string()]))
def test_words(rows: list[str | None], asked: list[str | None], type_: pa.DataType) -> None:
    table = _table([{"k": k} for k in rows], k=type_)
    with scratch_folder() as path:
        relation = Relation.build(table, path / "r", key="k", page_bytes=512)
        found = relation.lookup(asked, ["row", "k"])
        assert found.column_names == ["row", "k"]
        assert row_set(found.select(["k", "row"])) == _expected(table, ["k"], [(k,) for k in asked])


@SETTINGS
@given(
    st.lists(st.tuples(NUMBERS, WORDS), max_size=60), st.lists(st.tuples(NUMBERS, WORDS), max_size=20), st.booleans()
)
def test_composites(rows: list[tuple[Any, Any]], asked: list[tuple[Any, Any]], as_dict: bool) -> None:
    table = _table([{"a": a, "b": b} for a, b in rows], a=pa.int64(), b=pa.string())
    keys = pa.table(
        {"b": pa.array([b for _, b in asked], pa.string()), "a": pa.array([a for a, _ in asked], pa.int64())}
    )
    with scratch_folder() as path:
        relation = Relation.build(table, path / "r", key=["a", "b"], page_bytes=512)
        assert relation.null_key_rows == sum(None in row for row in rows)
        found = relation.lookup(keys if not as_dict else {name: keys[name] for name in keys.column_names})
        assert row_set(found) == _expected(table, ["a", "b"], asked)


@pytest.mark.parametrize("codes", [1, 2])
@pytest.mark.parametrize("composite", [False, True])
def test_equal_hashes_are_not_taken_for_equal_keys(
    folder: Path, monkeypatch: pytest.MonkeyPatch, codes: int, composite: bool
) -> None:
    real = KeyCodec.encode

    def collide(self: KeyCodec, columns: Any) -> Any:
        hashes, possible = real(self, columns)
        return hashes % codes, possible

    monkeypatch.setattr(KeyCodec, "encode", collide)
    words = [f"w{i % 40}" for i in range(200)] + [None]
    key = ["k", "n"] if composite else ["k"]
    table = _table([{"k": word, "n": i % 3} for i, word in enumerate(words)], k=pa.string(), n=pa.int8())
    relation = Relation.build(table, folder / "r", key=key, page_bytes=512)
    assert np.unique(relation.table.first_code).size == codes < relation.num_pages
    asked = [("w3", 1), ("w7", 1), ("absent", 0), ("w7", 1), (None, 1)]
    keys = pa.table({"k": [word for word, _ in asked], "n": pa.array([n for _, n in asked], pa.int8())})
    expected = _expected(table, key, asked if composite else [(word,) for word, _ in asked])
    assert expected
    assert row_set(relation.lookup(keys)) == expected
    updated = relation.update(deletes=keys)
    assert row_set(updated.scan()) == row_set(table) - expected
    assert updated.verify().rows == 201 - sum(expected.values())


@pytest.mark.parametrize("asked", [pa.int8(), pa.uint32(), pa.int64(), pa.dictionary(pa.int8(), pa.int64())])
def test_keys_of_other_widths_are_found(folder: Path, asked: pa.DataType) -> None:
    table = _table([{"k": k} for k in (-5, 0, 7, 7, 100)], k=pa.int32())
    relation = Relation.build(table, folder / "r", key="k")
    plain = pa.array([7, 100, 50], pa.int64())
    keys = plain.dictionary_encode() if pa.types.is_dictionary(asked) else plain.cast(asked)
    assert relation.lookup(keys)["row"].to_pylist() == [2, 3, 4]


def test_keys_that_the_type_of_the_relation_cannot_hold_are_not_found(folder: Path) -> None:
    days = Relation.build(_table([{"k": 0}, {"k": 1}], k=pa.timestamp("s")), folder / "t", key="k")
    assert days.lookup(pa.array([1, 1000, 1001], pa.timestamp("ms")))["row"].to_pylist() == [1]
    small = Relation.build(_table([{"k": 1}, {"k": -1}], k=pa.int8()), folder / "i", key="k")
    assert small.lookup([255, 257, 2**40, 1])["row"].to_pylist() == [0]
    money = Relation.build(_table([{"k": Decimal("1.50")}], k=pa.decimal128(10, 2)), folder / "d", key="k")
    assert money.lookup([Decimal("1.5"), Decimal("1.501")])["row"].to_pylist() == [0]


@pytest.mark.parametrize("make", [list, tuple, set, iter, np.array, pa.array, "pandas", "polars"])
def test_keys_come_in_any_form(folder: Path, make: Any) -> None:
    relation = Relation.build(_table([{"k": k} for k in range(10)], k=pa.int16()), folder / "r", key="k")
    maker = pytest.importorskip(make).Series if isinstance(make, str) else make
    assert relation.lookup(maker([3, 5, 77]))["k"].to_pylist() == [3, 5]


def test_bad_keys_are_refused(folder: Path) -> None:
    table = _table([{"a": "ab", "b": 1}], a=pa.string(), b=pa.int64())
    single = Relation.build(table, folder / "a", key="a")
    both = Relation.build(table, folder / "b", key=["a", "b"])
    for keys in ("ab", b"ab", 5, None):
        with pytest.raises(InvalidArgument, match="give a list or array of keys"):
            single.lookup(keys)
    with pytest.raises(KeyTypeError, match="int64 but relation key 'a' is string"):
        single.lookup([1, 2])
    with pytest.raises(KeyTypeError, match="do not share one Arrow type"):
        single.lookup([1, "x"])
    with pytest.raises(InvalidArgument, match=r"the relation's key is \(a, b\)\. Give a table"):
        both.lookup(["ab"])
    with pytest.raises(ColumnNotFound, match="no column 'b'; it has 'a'"):
        both.lookup({"a": ["ab"]})
    with pytest.raises(ColumnNotFound, match=r"no column 'rwo'.*Did you mean 'row'"):
        single.lookup(["ab"], ["rwo"])


def test_only_the_pages_that_may_hold_a_key_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk(seek_s=1, transfer_s=1)
    monkeypatch.setattr("semistream.relation.relation.open_disk", lambda *_: disk)
    relation = Relation.build(pa.table({"k": np.arange(0, 20_000, 2)}), folder / "r", key="k", page_bytes=1024)
    rows, table = int(relation.table.rows[0]), relation.table
    for keys, pages, seeks in [
        ([], 0, 0),
        ([-1, 10**6], 0, 0),
        ([0], 1, 1),
        ([1], 1, 1),  # inside the range of a page: only reading it can tell
        ([0, 2, 4], 1, 1),
        ([2 * rows - 2, 2 * rows], 2, 1),  # two neighbours are one request
        ([0, 10 * 2 * rows], 2, 2),
        ([int(table.last_code[4]) + 1], 0, 0),  # between two pages
    ]:
        disk.counts.pages = disk.counts.seeks = 0
        found = relation.lookup(keys)["k"].to_pylist()
        assert found == sorted(k for k in keys if k % 2 == 0 and 0 <= k < 20_000)
        assert (disk.counts.pages, disk.counts.seeks) == (pages, seeks), keys
