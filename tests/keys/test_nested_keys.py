"""Lists and structs as keys: equal exactly if Python finds them equal, whatever their types and depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream
from semistream import Relation
from semistream.errors import KeyTypeError
from semistream.keys import KeyCodec
from semistream.keys.comparison import compared
from semistream.keys.key_types import comparable
from semistream.tuning.candidates import OPERATORS
from tests.oracle import batch_join, multiset

_INTS = st.none() | st.sampled_from([0, 1, -1, 300])
_TEXTS = st.none() | st.sampled_from(["", "a", "b", "ab"])
_LISTS = st.none() | st.lists(_INTS, max_size=3)
_STRUCTS = st.none() | st.fixed_dictionaries({"a": _INTS, "b": _TEXTS})
_SHORT = pa.struct([("a", pa.int16()), ("b", pa.string())])
_WIDE = pa.struct([("a", pa.uint64()), ("b", pa.large_string())])
SHAPES: dict[str, tuple[Any, list[pa.DataType]]] = {
    "lists": (_LISTS, [pa.list_(pa.int16()), pa.large_list(pa.int64()), pa.list_(pa.decimal128(30, 2))]),
    "lists of floats": (_LISTS, [pa.list_(pa.int16()), pa.list_(pa.float64()), pa.list_(pa.float32())]),
    "pairs": (
        st.none() | st.lists(_TEXTS, min_size=2, max_size=2),
        [pa.list_(pa.string(), 2), pa.list_(pa.large_string())],
    ),
    "structs": (_STRUCTS, [_SHORT, _WIDE]),
    "lists of structs": (st.none() | st.lists(_STRUCTS, max_size=2), [pa.list_(_SHORT), pa.large_list(_SHORT)]),
    "structs of lists": (
        st.none() | st.fixed_dictionaries({"x": _LISTS, "y": st.lists(_LISTS, max_size=2)}),
        [pa.struct([("x", pa.list_(pa.int64())), ("y", pa.list_(pa.list_(pa.int16())))])],
    ),
}


def _can_hold(type_: pa.DataType, value: Any) -> bool:
    return not (pa.types.is_struct(type_) and type_.field(0).type == pa.uint64() and value and (value["a"] or 0) < 0)


@pytest.mark.parametrize("shape", SHAPES)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_equal_are_those_that_python_finds_equal(shape: str, data: st.DataObject) -> None:
    values, types = SHAPES[shape]
    sides = []
    for _ in range(2):
        type_ = data.draw(st.sampled_from(types))
        drawn = [v for v in data.draw(st.lists(values, min_size=1, max_size=7)) if _can_hold(type_, v)]
        sides.append((drawn, pa.array([None, *drawn], type_).slice(1)))
    (ours, left), (theirs, right) = sides
    codec = KeyCodec.of(["r"], [right.type])
    codec.accept(["s"], [left.type])
    expected = [[a is not None and a == b for b in theirs] for a in ours]
    (s_codes, s_can), (r_codes, r_can) = codec.encode([left]), codec.encode([right])
    same = (s_codes[:, None] == r_codes) & (np.True_ if s_can is None else s_can[:, None])
    same = same & (np.True_ if r_can is None else r_can)
    assert same.tolist() == expected
    i, j = np.divmod(np.arange(len(ours) * len(theirs)), max(len(theirs), 1))
    crossed = left.take(pa.array(i)), right.take(pa.array(j))
    assert codec.equal([crossed[0]], [crossed[1]]).tolist() == [flag for row in expected for flag in row]


@pytest.mark.parametrize("operator", OPERATORS)
def test_joins_by_lists_and_structs_are_those_of_duckdb(operator: str, tmp_path: Path) -> None:
    keys = [None if i % 11 == 0 else {"a": i % 7, "b": [str(i % 5)] * (i % 3)} for i in range(400)]
    type_ = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    table = pa.table({"k": pa.array(keys[:150], type_), "n": range(150), "w": range(150)})
    stream = pa.table({"s": pa.array(keys[200:], type_), "m": [i % 150 for i in range(200)], "v": range(200)})
    relation = Relation.build(table.slice(0, 140), tmp_path / "r", key=["k"], page_bytes=1024)
    relation = relation.update(upserts=table.slice(140), deletes=[{"a": 3, "b": ["3"]}])
    rows = relation.scan().read_all()
    assert {"a": 3, "b": ["3"]} not in rows["k"].to_pylist()
    for how in ("inner", "anti"):
        columns = {"columns": ["n", "w"]} if how == "inner" else {}
        found = semistream.join(stream, relation, on={"s": "k"}, how=how, operator=operator, memory="1MB", **columns)
        expected = batch_join(stream, rows, {"s": "k"}, how, ["n", "w"])
        assert multiset(found.read_all()) == multiset(expected)


def test_what_has_other_parts_or_an_order_is_refused() -> None:
    pair = pa.struct([("a", pa.int8()), ("b", pa.string())])
    for other in (
        pa.struct([("b", pa.int8()), ("a", pa.string())]),
        pa.struct([("a", pa.int8())]),
        pa.list_(pa.int8()),
    ):
        assert not comparable(pair, other)
    assert not comparable(pa.list_(pa.int8()), pa.list_(pa.string()))
    with pytest.raises(KeyTypeError, match="have no order"):
        compared(pair, pair, "<")
    with pytest.raises(KeyTypeError, match=r"'k' has type list<.*interval.*cannot be a join key"):
        KeyCodec.of(["k"], [pa.list_(pa.month_day_nano_interval())])
