"""Rules of rows against plain Python, value by value."""

import math

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semistream.pipelines.spec.row_rules import RowRule, first_broken, readable_time
from semistream.pipelines.tables.quarantine import invalid_rows

numbers = st.one_of(st.none(), st.floats(-5, 5), st.just(math.nan), st.just(math.inf))
rules = st.builds(
    RowRule,
    st.sampled_from(["a", "b"]),
    st.booleans(),
    st.one_of(st.none(), st.integers(-4, 0)),
    st.one_of(st.just(0), st.integers(1, 4)),
    st.one_of(st.none(), st.just((0, 1, 2.5))),
)


def broken(rule, value):
    if value is None:
        return rule.not_null
    if rule.least is not None and not value >= rule.least:
        return True
    if rule.most is not None and not value <= rule.most:
        return True
    return rule.one_of is not None and value not in rule.one_of


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.tuples(numbers, numbers), max_size=10), held=st.lists(rules, max_size=3))
@example(rows=[(-0.0, None)], held=[RowRule("a", one_of=(0, 1))])
def test_the_first_rule_that_is_broken_is_the_reason(rows, held):
    batch = pa.record_batch({name: pa.array([row[i] for row in rows], pa.float64()) for i, name in enumerate("ab")})
    expected = [
        next((rule.reason for rule in held if broken(rule, row["ab".index(rule.column)])), None) for row in rows
    ]
    assert first_broken(held, batch).to_pylist() == expected


def test_rows_of_any_values_have_a_text():
    no_text = pa.array([b"\xff\xfe", b"ok"]).view(pa.string())
    days = pa.array([2**30, 0], pa.int32()).cast(pa.date32())
    columns = [
        no_text,
        days,
        pa.array([1, None], pa.timestamp("ns")),
        pa.array([math.nan, 1.0]),
        pa.array([b"\xff", None]),
    ]
    rows = pa.RecordBatch.from_arrays(columns, names=["s", "d", "t", "f", "d"])
    found = invalid_rows(3, rows, None, pa.array(["x", "y"])).to_pylist()
    assert found[1] == {
        "raw": '{"s": "ok", "d": "1970-01-01", "t": null, "f": 1.0, "d#4": null}',
        "reason": "y",
        "batch_id": 3,
    }
    assert "xff" in found[0]["raw"]
    assert "out of range: 1073741824" in found[0]["raw"]


def test_dates_that_nobody_can_read_back_are_told():
    for type_ in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        rule = readable_time("at", type_)
        years = pa.array([0, None, 2**62 if type_.bit_width == 64 else 2**30]).cast(
            pa.int64() if type_.bit_width == 64 else pa.int32()
        )
        assert rule.broken(years.cast(type_)).to_pylist() == [False, False, True]
    assert readable_time("at", pa.string()) is None
