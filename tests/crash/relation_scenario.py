"""A relation that is built, updated, vacuumed and built anew, with pages in two files for each version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from semistream.errors import NotARelation
from semistream.relation import Change, Relation, Transaction
from tests.crash.cuts import Tell
from tests.crash.disk import Disk

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
Rows = dict[int | None, tuple[str, float]]


def _rows(ids: Sequence[int | None], version: int) -> Rows:
    return {number: (f"name {number} of {version}", version + 0.5) for number in ids}


def _table(rows: Rows) -> pa.Table:
    columns = [list(rows), [name for name, _ in rows.values()], [price for _, price in rows.values()]]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


_GROUPS = [["id"], ["name", "price"]]
_FIRST, _CHANGED = _rows(range(60), 1), _rows(range(10, 20), 2)
_ADDED, _NEW = _rows([*range(60, 70), None], 3), _rows(range(30), 4)


_REPEATABLE = {"change", "again", "vacuum", "vacuum once more"}


class RelationScenario:
    """Steps on one relation; each ends at a version, whose rows are known."""

    name = "relation"
    disk = Disk()

    def __init__(self) -> None:
        self.steps: list[tuple[str, Callable[[Path], object], Rows]] = []
        rows: Rows = {}
        for name, step, change in (
            ("build", _build, lambda rows: _FIRST),
            ("change", _change, lambda rows: {key: row for key, row in rows.items() if key != 7} | _CHANGED),
            ("vacuum", _vacuum, lambda rows: rows),
            ("add", _add, lambda rows: rows | _ADDED),
            ("again", _change, lambda rows: rows),  # a transaction that the relation has
            ("rebuild", _rebuild, lambda rows: _NEW),
            ("vacuum once more", _vacuum, lambda rows: rows),
        ):
            rows = change(rows)
            self.steps.append((name, step, rows))

    def run(self, folder: Path, tell: Tell) -> None:
        for name, step, _ in self.steps:
            step(folder / "warehouse" / "r")
            tell(name)

    def check(self, folder: Path, told: Sequence[str], tell: Tell) -> None:
        names = [name for name, _, _ in self.steps]
        path, done = folder / "warehouse" / "r", max((names.index(name) + 1 for name in told), default=0)
        before = self.steps[done - 1][2] if done else None
        try:
            found = _read(path)
        except NotARelation:
            found = None
        if done < len(self.steps):
            name, step, after = self.steps[done]
            assert found in (before, after), f"neither what {name!r} found nor what it makes"
            if found == before or name in _REPEATABLE:
                step(path)
                assert _read(path) == after
                tell(name)
        else:
            assert found == before
        for version in Relation.open(path).versions():
            Relation.open(path, version).verify()
        Relation.open(path).vacuum(1)
        if done < len(self.steps):  # also if a version was published by a writer that did not return
            tell(names[done])
        now = Relation.open(path)
        files = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
        assert files == now.manifest.file_names | {"CURRENT", "lock", f"versions/{now.version:06d}.json"}


def _read(path: Path) -> Rows:
    relation = Relation.open(path)
    relation.verify()
    table = relation.scan().read_all()
    found = {row["id"]: (row["name"], row["price"]) for row in table.to_pylist()}
    assert len(found) == table.num_rows == relation.num_rows
    return found


def _build(path: Path) -> None:
    Relation.build(_table(_FIRST), path, key="id", page_bytes=1024, column_groups=_GROUPS)


def _change(path: Path) -> None:
    change = Change(upserts=_table(_CHANGED), deletes=pa.table({"id": [7]}))
    Relation.open(path).change(lambda _: change, Transaction("crash", 1))


def _add(path: Path) -> None:
    Relation.open(path).update(_table(_ADDED))


def _rebuild(path: Path) -> None:
    Relation.build(_table(_NEW), path, key="id", page_bytes=1024, overwrite=True)


def _vacuum(path: Path) -> None:
    Relation.open(path).vacuum(1)
