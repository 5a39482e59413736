"""Any sequence of updates, beside a plain dict of keys and their rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.relation import Relation
from tests.relation.row_sets import row_set, scratch_folder

NUMBERS = st.one_of(st.none(), st.integers(0, 60))
WORDS = st.one_of(st.none(), st.text("abc", max_size=2))
KINDS: dict[str, tuple[list[tuple[str, pa.DataType]], st.SearchStrategy[tuple[Any, ...]]]] = {
    "number": ([("k", pa.int64())], st.tuples(NUMBERS)),
    "small number": ([("k", pa.uint8())], st.tuples(NUMBERS)),
    "word": ([("k", pa.string())], st.tuples(WORDS)),
    "composite": ([("k", pa.int32()), ("w", pa.large_string())], st.tuples(NUMBERS, WORDS)),
}
Change = tuple[list[tuple[tuple[Any, ...], int]], list[tuple[Any, ...]]]


class Model:
    """Rows by key. Null keys are in no one's reach."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.rows: list[tuple[tuple[Any, ...], int]] = []

    def change(self, upserts: list[tuple[tuple[Any, ...], int]], deletes: list[tuple[Any, ...]]) -> None:
        gone = {key for key in [*deletes, *(key for key, _ in upserts)] if None not in key}
        self.rows = [row for row in self.rows if row[0] not in gone] + upserts

    def row_set(self) -> Counter[str]:
        return row_set([{**dict(zip(self.names, key, strict=True)), **_payload(n)} for key, n in self.rows])


def _payload(n: int) -> dict[str, Any]:
    return {"n": n, "s": None if n % 5 == 0 else "x" * (n % 90), "l": [n] * (n % 4)}


def row_table(rows: list[tuple[tuple[Any, ...], int]], key: list[tuple[str, pa.DataType]]) -> pa.Table:
    schema = pa.schema([*key, ("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int16()))])
    names = [name for name, _ in key]
    return pa.Table.from_pylist([{**dict(zip(names, k, strict=True)), **_payload(n)} for k, n in rows], schema=schema)


def key_table(keys: list[tuple[Any, ...]], key: list[tuple[str, pa.DataType]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{name: value for (name, _), value in zip(key, values, strict=True)} for values in keys], schema=pa.schema(key)
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[tuple[tuple[Any, ...], int]], list[Change]]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    rows = st.tuples(KINDS[kind][1], st.integers(0, 200))
    change = st.tuples(st.lists(rows, max_size=25), st.lists(KINDS[kind][1], max_size=25))
    return kind, draw(st.lists(rows, max_size=60)), draw(st.lists(change, min_size=1, max_size=5))


@settings(max_examples=40, deadline=None)
@given(histories(), st.sampled_from([600, 1024, 3000]), st.sampled_from([0.5, 0.9, 1.0]))
def test_every_version_is_what_the_model_says(
    history: tuple[str, list[tuple[tuple[Any, ...], int]], list[Change]], page_bytes: int, fill_factor: float
) -> None:
    kind, first, changes = history
    key, _ = KINDS[kind]
    names = [name for name, _ in key]
    model = Model(names)
    model.rows = list(first)
    with scratch_folder() as folder:
        relation = Relation.build(
            row_table(first, key), folder / "r", key=names, page_bytes=page_bytes, fill_factor=fill_factor
        )
        history_sets = [model.row_set()]
        for upserts, deletes in changes:
            model.change(upserts, deletes)
            history_sets.append(model.row_set())
            relation = relation.update(upserts=row_table(upserts, key), deletes=key_table(deletes, key))
            assert relation.verify().rows == relation.num_rows == len(model.rows)
            assert row_set(relation.scan()) == history_sets[-1]
            assert relation.null_key_rows == sum(None in k for k, _ in model.rows)
            table = relation.table
            assert ((table.nbytes <= page_bytes) | (table.rows == 1)).all()
            asked = [k for k, _ in upserts] + deletes
            expected = Model(names)
            expected.rows = [row for row in model.rows if row[0] in asked and None not in row[0]]
            assert row_set(relation.lookup(key_table(asked, key))) == expected.row_set()
        assert relation.versions() == list(range(1, len(changes) + 2))
        for version, rows in enumerate(history_sets, start=1):
            old = Relation.open(folder / "r", version=version)
            assert row_set(old.scan()) == rows
            old.verify()
        relation.vacuum()
        assert row_set(Relation.open(folder / "r").scan()) == history_sets[-1]
