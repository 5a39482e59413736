"""Every case of the peers' suites in every operator that takes its condition, beside a join by brute force."""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream
from semistream import Relation
from semistream.errors import InvalidArgument
from semistream.tuning.candidates import OPERATORS
from tests.arrow_types import python
from tests.joins.peers.peer_cases import CASES, PeerCase, Row

HOWS = ("inner", "left", "semi", "anti")


def _rows(table: pa.Table) -> list[Row]:
    columns = [python(table[name]) for name in table.column_names]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _expected(case: PeerCase, stream: pa.Table, relation: pa.Table, how: str) -> Counter[tuple[Any, ...]]:
    """The join by two loops: the columns of S, then for pairs those of R that ``on`` does not equate."""
    found: Counter[tuple[Any, ...]] = Counter()
    payload = [name for name in relation.column_names if name not in case.on.values()]
    left, right = stream.to_pylist(), relation.to_pylist()
    shown, rest = _rows(stream), _rows(relation.select(payload)) if payload else [{}] * relation.num_rows
    for s, s_shown in zip(left, shown, strict=True):
        matches = [rest[i] for i, r in enumerate(right) if case.matches(s, r)]
        own = tuple(s_shown.values())
        if how in ("semi", "anti"):
            found[own] += bool(matches) == (how == "semi")
        else:
            found.update(own + tuple(match.values()) for match in matches)
            if how == "left" and not matches:
                found[own + (None,) * len(payload)] += 1
    return +found


def _stream_of(case: PeerCase, table: pa.Table) -> Any:
    return table if case.chunk is None else iter(table.to_batches(max_chunksize=case.chunk))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.origin)
def test_rows_are_those_of_brute_force(case: PeerCase, tmp_path: Path) -> None:
    stream, table = pa.table(case.stream), pa.table(case.relation)
    relation = Relation.build(table, tmp_path / "r", key=list(case.relation_key), page_bytes=case.page_bytes)
    expected = {how: _expected(case, stream, table, how) for how in HOWS}
    hows = islice(cycle(HOWS), len(case.origin) % len(HOWS), None)  # each operator gets another one in each case
    joined: list[str] = []
    for operator, how in zip(["auto", *OPERATORS], hows, strict=False):
        terms: dict[str, Any] = {"on": case.on or None, "where": case.where, "how": how, "memory": "2MB"}
        try:
            found = semistream.join(_stream_of(case, stream), relation, operator=operator, **terms).read_all()
        except InvalidArgument:  # the condition does not restrict the key that this operator looks up
            continue
        joined.append(operator)
        rows = Counter(zip(*(python(column) for column in found.columns), strict=True))
        assert rows == expected[how], f"{operator}, {how}"
    assert {"auto", "mesh", "adaptive_mesh"} <= set(joined)
    assert case.where or joined == ["auto", *OPERATORS]


def test_every_suite_is_there_and_no_case_twice() -> None:
    origins = [case.origin for case in CASES]
    assert len(set(origins)) == len(origins)
    assert {origin.split()[0] for origin in origins} == {"Polars", "DuckDB", "Spark", "pandas", "Arrow"}


def _first(s: Row, r: Row) -> bool:
    return bool(s["s"] == 1 and r["w"] == 1)


def test_a_wrong_row_would_be_found(tmp_path: Path) -> None:
    relation = {"k": [1, 1, 2], "w": [1, 2, 3]}
    broken = PeerCase("a condition that the join does not know of", {"s": [1, 2]}, relation, {"s": "k"}, None, _first)
    with pytest.raises(AssertionError, match="auto, "):
        test_rows_are_those_of_brute_force(broken, tmp_path)
