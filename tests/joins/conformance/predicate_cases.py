"""Joins by other conditions than equality to try: drawn by Hypothesis, each with the same condition in DuckDB's words.

DuckDB orders values as semistream does (NaN is the greatest and equals itself, strings go by bytes) and compares
numbers of any widths as numbers; only distances need care: its subtraction overflows, its intervals have no abs().
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

DAY = dt.date(2024, 2, 29)
AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
FAR = [Decimal("-1.10"), Decimal("7.25"), Decimal("0.00"), Decimal("7.20"), Decimal("6.25")]
NAN, INF = float("nan"), float("inf")

# Of each kind: R's type, the stream's, values that both can have, values that only the stream's can, and a distance as
# semistream and as DuckDB have it ({s} and {r} are the two columns).
KINDS: list[tuple[pa.DataType, pa.DataType, list[Any], list[Any], tuple[str, str] | None]] = [
    (pa.int64(), pa.int64(), [*range(-4, 9), 2**63 - 1, -(2**63)], [], ("3", "abs({s}::HUGEINT - {r}) <= 3")),
    (pa.int32(), pa.int64(), [*range(-4, 9), 2**31 - 1], [2**40, -(2**40)], ("2.5", "abs({s} - {r}) <= 2.5")),
    (pa.uint64(), pa.uint32(), [0, 1, 2, 5, 9], [], ("4", "abs({s}::HUGEINT - {r}) <= 4")),
    (pa.uint8(), pa.uint64(), [0, 1, 2, 5, 255], [2**64 - 1, 256], ("4", "abs({s}::HUGEINT - {r}) <= 4")),
    (pa.string(), pa.string(), ["", "a", "b", "ä", "x" * 40, "x" * 41], [], None),
    (pa.binary(), pa.large_binary(), [b"", b"\x00", b"\x80", b"abc", b"\xff"], [], None),
    (pa.bool_(), pa.bool_(), [True, False], [], None),
    (pa.float64(), pa.float32(), [0.0, -0.0, 1.5, NAN, INF, -INF, 2.5], [], ("1", "abs({s}::DOUBLE - {r}) <= 1")),
    (pa.date32(), pa.date32(), [DAY + dt.timedelta(i) for i in range(6)], [], ("2 days", "abs({s} - {r}) <= 2")),
    (
        pa.timestamp("s", "UTC"),
        pa.timestamp("us", "UTC"),
        [AT + dt.timedelta(minutes=m) for m in range(0, 12, 2)],
        [AT + dt.timedelta(microseconds=1), AT + dt.timedelta(minutes=6, microseconds=-1)],
        ("INTERVAL '4 minutes'", "abs(epoch_us({s}) - epoch_us({r})) <= 240000000"),
    ),
    (
        pa.decimal128(10, 1),
        pa.decimal128(12, 2),
        [Decimal(i) / 2 for i in range(6)],
        FAR,
        ("1.1", "abs({s} - {r}) <= 1.1"),
    ),
    (pa.decimal128(30, 2), pa.decimal128(20, 3), FAR, [Decimal("7.251")], ("1", "abs({s} - {r}) <= 1")),
]


@dataclass(frozen=True)
class PredicateCase:
    """A relation, a stream, and a condition in semistream's words and in DuckDB's."""

    relation: pa.Table
    key: tuple[str, ...]
    batches: tuple[pa.RecordBatch, ...]
    schema: pa.Schema
    on: dict[str, str] | None
    where: list[str | pc.Expression]
    sql: str
    how: str
    page_bytes: int

    @property
    def stream(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema)

    @property
    def payload(self) -> list[str]:
        return [name for name in self.relation.column_names if name not in (self.on or {}).values()]


def _conditions(kind: Any) -> list[tuple[str | pc.Expression, str]]:
    """Conditions on the columns below, each as semistream and as DuckDB read it."""
    signs = ["<", "<=", ">", ">=", "!=", "="]
    texts = [f"s.x {sign} r.k" for sign in signs] + [f"r.k {sign} s.x" for sign in signs]
    texts += [f"s.x {sign} r.top" for sign in signs] + ["s.x BETWEEN r.k AND r.top", "r.k BETWEEN s.x AND s.y"]
    texts += ["s.g = r.g", "s.g > r.g", "r.name BETWEEN s.name AND s.name", "s.name < r.name"]
    conditions: list[tuple[str | pc.Expression, str]] = [(text, text) for text in texts]
    if kind[4] is not None:
        distance, sql = kind[4]
        for column in ("k", "top"):
            conditions.append((f"abs(s.x - r.{column}) <= {distance}", sql.format(s="s.x", r=f"r.{column}")))
            strict = sql.replace("<=", "<").format(s="s.y", r=f"r.{column}")
            conditions.append((f"abs(r.{column} - s.y) < {distance}", strict))
    field = pc.field
    conditions.append((field("g") + field("g_right") > 2, "s.g + r.g > 2"))
    conditions.append((field("name_right") == field("name"), "r.name = s.name"))
    conditions.append((field("p").is_valid() & (field("number") - 3 != field("p")), "s.number - 3 != r.p"))
    return conditions


@st.composite
def _column(draw: st.DrawFn, type_: pa.DataType, values: list[Any], rows: int) -> pa.Array:
    picks = st.sampled_from(values)
    return pa.array(
        draw(st.lists(picks | st.none() if draw(st.booleans()) else picks, min_size=rows, max_size=rows)), type_
    )


@st.composite
def predicate_cases(draw: st.DrawFn) -> PredicateCase:
    """A case: R keyed by the compared column, by others or by several; any conditions; any split into batches."""
    kind = draw(st.sampled_from(KINDS))
    r_type, s_type, shared, beyond, _ = kind
    r_rows, s_rows = draw(st.integers(0, 60)), draw(st.integers(1, 40))
    names, groups = ["", "b", "k" * 50, "z"], [0, 1, 2, 3]
    relation = pa.table(
        {
            "k": draw(_column(r_type, shared, r_rows)),
            "top": draw(_column(r_type, shared, r_rows)),
            "g": draw(_column(pa.int16(), groups, r_rows)),
            "name": draw(_column(pa.string(), names, r_rows)),
            "p": draw(_column(pa.int32(), groups, r_rows)),
            "list": pa.array([[i] * (i % 3) for i in range(r_rows)], pa.list_(pa.int64())),
        }
    )
    stream = pa.table(
        {
            "x": draw(_column(s_type, shared + beyond, s_rows)),
            "y": draw(_column(s_type, shared + beyond, s_rows)),
            "g": draw(_column(pa.int32(), groups, s_rows)),
            "name": draw(_column(pa.string(), names, s_rows)),
            "number": pa.array(range(s_rows)),
        }
    )
    key = draw(st.sampled_from([("k",), ("k",), ("k",), ("g",), ("name",), ("k", "g"), ("number",)]))
    if key == ("number",):
        relation = relation.append_column("number", pa.array(range(r_rows), pa.int64()))
    on = draw(st.sampled_from([None, None, None, {"g": "g"}, {"name": "name"}, {"x": "k"}]))
    conditions = draw(st.lists(st.sampled_from(_conditions(kind)), min_size=0 if on else 1, max_size=3))
    sql = [f"s.{left} = r.{right}" for left, right in (on or {}).items()] + [sql for _, sql in conditions]
    cuts = sorted(draw(st.lists(st.integers(0, s_rows), max_size=3)))
    batches = [
        pa.RecordBatch.from_arrays([c.combine_chunks() for c in stream.slice(a, b - a).columns], schema=stream.schema)
        for a, b in zip([0, *cuts], [*cuts, s_rows], strict=True)
    ]
    return PredicateCase(
        relation,
        key,
        tuple(batches),
        stream.schema,
        on,
        [condition for condition, _ in conditions],
        " AND ".join(f"({part})" for part in sql),
        draw(st.sampled_from(["inner", "left", "semi", "anti"])),
        draw(st.sampled_from([512, 1500, 65536])),
    )
