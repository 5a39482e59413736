"""Key columns of the type null: a batch in which a column happens to have no value joins as any other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import semistream
from semistream import Relation
from semistream.keys import KeyCodec
from semistream.keys.comparison import compared, within
from tests.keys.key_oracle import GROUPS

TYPES = [type_ for types in GROUPS.values() for type_ in types]
NULLS = pa.nulls(3)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_nulls_fulfil_no_condition_with_a_value_of_any_type(type_: pa.DataType) -> None:
    values = pa.nulls(3, type_)
    for stream, relation in ((NULLS, values), (values, NULLS), (NULLS, NULLS), (NULLS.dictionary_encode(), values)):
        for names in (["r"], ["r", "q"]):
            codec = KeyCodec.of(names, [relation.type] * len(names))
            codec.accept(names, [stream.type] * len(names))
            assert codec.encode([stream] * len(names))[1].tolist() == [False] * 3  # type: ignore[union-attr]
            assert codec.equal([stream] * len(names), [relation] * len(names)).tolist() == [False] * 3
        for sign in ("<", "<=", ">", ">=", "!="):
            comparison = compared(stream.type, relation.type, sign)  # type: ignore[arg-type]
            assert comparison.holds(stream, relation).tolist() == [False] * 3
            if comparison.has_ranges:
                assert comparison.ranges(stream).possible.tolist() == [False] * 3  # type: ignore[union-attr]
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        near = within(NULLS.type, type_, 5, is_duration=False, strict=False)  # type: ignore[arg-type]
        assert near.holds(NULLS, values).tolist() == [False] * 3


@pytest.mark.parametrize("operator", ["engine", "mesh", "cmesh", "hybrid", "index", "nested_loop", "resident"])
def test_a_join_with_no_key_at_all_on_one_side(operator: str, tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, None], "w": ["a", "b", "c"]})
    nulls = rows.set_column(0, "k", NULLS)
    for number, (stream, table) in enumerate(((nulls, rows), (rows, nulls), (nulls, nulls))):
        relation = Relation.build(table, tmp_path / str(number), key="k")
        assert relation.null_key_rows == table["k"].null_count
        assert relation.scan().read_all().num_rows == 3
        for how, found in (("inner", 0), ("left", 3), ("semi", 0), ("anti", 3)):
            joined = semistream.join(stream, relation, on="k", how=how, operator=operator, memory="1MB").read_all()
            assert joined.num_rows == found
            assert joined["k"].type == stream["k"].type
