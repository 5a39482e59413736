"""The LMDB copy of R: built by several processes at once, beside a vacuum, by a process that dies."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream
from semistream import Relation
from semistream.errors import CorruptRelation
from semistream.joins.lookup import lmdb_store

ROWS = 60_000
_CONTEXT = multiprocessing.get_context("forkserver")
_start: list[Barrier] = []


@pytest.fixture
def relation(tmp_path: Path) -> Relation:
    keys = np.arange(ROWS)
    return Relation.build(pa.table({"id": keys, "value": keys * 7}), tmp_path / "r", key="id", page_bytes=1024)


def joined_rows(path: Path) -> int:
    """Count the matches of every 20th key, after checking their values."""
    stream = pa.table({"id": np.arange(0, ROWS, 20)})
    found = semistream.join(stream, str(path), on="id", operator="nested_loop", memory="2MB").read_all()
    assert (found["value"].to_numpy() == found["id"].to_numpy() * 7).all()
    return found.num_rows


def _meet(start: Barrier) -> None:
    _start.append(start)


def _join_together(path: Path) -> int:
    _start[0].wait()
    return joined_rows(path)


def test_processes_that_build_at_once_lose_no_rows(relation: Relation) -> None:
    with _CONTEXT.Pool(2, _meet, (_CONTEXT.Barrier(2),)) as pool:
        for change in range(4):
            counts = pool.map(_join_together, [relation.path] * 2, chunksize=1)
            assert counts == [ROWS // 20] * 2, f"version {change + 1}"
            relation = relation.update(pa.table({"id": [change], "value": [change * 7]}))
    names = {path.name for path in (relation.path / "lmdb").iterdir() if path.is_dir()}
    assert len(names) == 4
    assert not any(name.startswith(".") for name in names)


def test_vacuum_removes_what_dead_builders_left_but_no_tree_being_built(
    relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = relation.path / "lmdb" / ".000001-dead.0123.tmp"
    left.mkdir(parents=True)
    pairs = lmdb_store._pairs

    def vacuuming(source: Relation):  # type: ignore[no-untyped-def]
        for count, pair in enumerate(pairs(source)):
            if count == 500:
                assert relation.vacuum() == []
            yield pair

    monkeypatch.setattr(lmdb_store, "_pairs", vacuuming)
    assert joined_rows(relation.path) == ROWS // 20
    assert relation.vacuum() == [f"lmdb/{left.name}"]
    assert joined_rows(relation.path) == ROWS // 20


def test_a_tree_that_lacks_pages_is_refused(relation: Relation) -> None:
    part = relation.part(None, 1000)
    lmdb_store._build(part, lmdb_store._path(relation))
    with pytest.raises(CorruptRelation, match=r"has \d+ of the \d+ pages.*Remove the folder"):
        joined_rows(relation.path)


def _die_building(path: Path) -> None:
    pairs = lmdb_store._pairs

    def dying(source: Relation):  # type: ignore[no-untyped-def]
        for count, pair in enumerate(pairs(source)):
            if count == 500:
                os._exit(9)
            yield pair

    lmdb_store._pairs = dying
    joined_rows(path)


def test_the_next_process_builds_the_tree_of_one_that_died(relation: Relation) -> None:
    process = _CONTEXT.Process(target=_die_building, args=(relation.path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert joined_rows(relation.path) == ROWS // 20
    assert not list((relation.path / "lmdb").glob("*.tmp"))
    assert relation.vacuum() == []
