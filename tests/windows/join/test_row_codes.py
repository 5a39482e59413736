"""Row codes are equal exactly where rows are equal, in any container."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.windows.row_codes import row_codes

VALUES = {
    "int64": [0, 1, -(2**63)],
    "string": ["", "a", "ä"],
    "bool": [True, False],
    "double": [0.0, -0.0, math.nan, math.inf],
    "date32": [date(1985, 9, 1), date(1986, 9, 1)],
    "decimal": [Decimal("1.0"), Decimal("1.5")],
    "binary": [b"", b"\0"],
}
TYPES = {name: pa.decimal128(9, 1) if name == "decimal" else pa.type_for_alias(name) for name in VALUES}


def same(one: tuple[Any, ...], other: tuple[Any, ...], nulls_match: bool) -> bool:
    def equal(a: Any, b: Any) -> bool:
        if a is None or b is None:
            return nulls_match and a is b
        return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))

    return all(equal(a, b) for a, b in zip(one, other, strict=True))


@settings(deadline=None, max_examples=80)
@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3), st.booleans(), st.data())
def test_codes_are_equal_where_rows_are(kinds: list[str], nulls_match: bool, data: st.DataObject):
    row = st.tuples(*(st.none() | st.sampled_from(VALUES[kind]) for kind in kinds))
    sides = [data.draw(st.lists(row, max_size=6)) for _ in range(2)]
    schema = pa.schema([(str(i), TYPES[kind]) for i, kind in enumerate(kinds)])
    tables = [
        pa.table([pa.array([one[i] for one in rows], field.type) for i, field in enumerate(schema)], schema=schema)
        for rows in sides
    ]
    codes = np.concatenate(row_codes(*tables, nulls_match=nulls_match)).tolist()
    rows = [*sides[0], *sides[1]]
    for i, one in enumerate(rows):
        if None in one and not nulls_match:
            assert codes[i] == -1
            continue
        assert codes[i] >= 0
        assert [codes[i] == code for code in codes] == [same(one, other, nulls_match) for other in rows]


@pytest.mark.parametrize(
    "rows",
    [
        np.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"]),
        pa.chunked_array([["b"], ["a", "b"]]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.table({"x": ["b", "a", "b"]}),
        pa.record_batch({"x": ["b", "a", "b"]}),
        pa.chunked_array([pa.array(["b"]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()]),
    ],
)
def test_the_container_of_the_rows_does_not_matter(rows: Any):
    codes, other = row_codes(rows, pa.array(["a", "c"]))
    assert codes.tolist() == [0, 1, 0]
    assert other.tolist() == [1, 2]


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(KeyTypeError, match="int32, int64"):
        row_codes(pa.array([1], pa.int32()), pa.array([1], pa.int64()))
    with pytest.raises(KeyTypeError, match="give their parts as columns"):
        row_codes(pa.array([{"a": 1}]))
    with pytest.raises(InvalidArgument, match=r"\[1, 2\] columns"):
        row_codes(pa.table({"a": [1]}), pa.table({"a": [1], "b": [1]}))
    with pytest.raises(InvalidArgument, match="give a column of Arrow or NumPy"):
        row_codes(np.array([object()]))
