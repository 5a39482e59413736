"""One writer at a time; a dead writer holds no lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from semistream.errors import RelationError, RelationLocked
from semistream.relation import Relation
from semistream.relation.write import version_draft as draft
from semistream.storage import locks
from semistream.storage.locks import writer_lock
from tests.relation.child_process import run_child, running_child
from tests.relation.row_sets import files_under, row_set, scratch_folder

TABLE = pa.table({"k": [1, 2, 3]})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "WAIT_S", 0.1)


@pytest.fixture
def relation() -> Iterator[Relation]:
    with scratch_folder() as folder:
        yield Relation.build(TABLE, folder / "r", key="k")


def _hold(pipe: Any, path: Path) -> None:
    with writer_lock(path), suppress(EOFError):
        pipe.send("held")
        pipe.recv()


def test_second_writer_is_told_who_the_first_is(relation: Relation) -> None:
    with running_child(_hold, relation.path) as process:
        files = files_under(relation.path)
        for write in (
            lambda: relation.update(deletes=[1]),
            lambda: Relation.build(TABLE, relation.path, key="k", overwrite=True),
            relation.vacuum,
        ):
            with pytest.raises(RelationLocked, match=f"is being written by process {process.pid}"):
                write()
        assert files_under(relation.path) == files
        assert relation.verify().rows == 3  # readers are not kept out
        assert row_set(relation.scan()) == row_set(TABLE)
    assert relation.update(deletes=[1]).num_rows == 2


def test_dead_writer_does_not_block(relation: Relation) -> None:
    with running_child(_hold, relation.path) as process:
        process.kill()
        process.join()
        assert (relation.path / "lock").read_text().strip() == str(process.pid)
        assert relation.update(deletes=[1]).num_rows == 2
        assert (relation.path / "lock").read_text().strip() == str(os.getpid())


def test_threads_of_one_process_exclude_each_other_too(relation: Relation) -> None:
    with writer_lock(relation.path), pytest.raises(RelationLocked, match=f"process {os.getpid()}"):
        relation.update(deletes=[1])


def test_a_writer_waits_for_another(relation: Relation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "WAIT_S", 30)
    held = ExitStack()
    held.enter_context(writer_lock(relation.path))
    timer = threading.Timer(0.3, held.close)
    timer.start()
    assert relation.update(deletes=[1]).num_rows == 2
    timer.join()
    with writer_lock(relation.path), pytest.raises(RelationLocked):
        relation.update(deletes=[2], wait_s=0)


def _bad_rows(pipe: Any) -> Iterator[pa.RecordBatch]:
    yield TABLE.to_batches()[0]
    pipe.send("held")
    with suppress(EOFError):
        pipe.recv()
    raise ZeroDivisionError


def _fail_to_build(pipe: Any, path: Path) -> None:
    with suppress(ZeroDivisionError):
        Relation.build(_bad_rows(pipe), path, key="k")


def test_a_writer_that_waits_survives_the_failure_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one removes the folder, with the lock file, that the second one waits for."""
    monkeypatch.setattr(locks, "WAIT_S", 30)
    with ExitStack() as first:
        first.enter_context(running_child(_fail_to_build, tmp_path / "r"))
        timer = threading.Timer(0.3, first.close)
        timer.start()
        assert Relation.build(TABLE, tmp_path / "r", key="k").verify().rows == 3
        timer.join()
    assert Relation.open(tmp_path / "r").verify().rows == 3


def test_lock_is_free_after_an_error(relation: Relation) -> None:
    with pytest.raises(RelationError, match="overwrite"):
        Relation.build(TABLE, relation.path, key="k")
    with pytest.raises(ZeroDivisionError):
        relation.update(upserts=(1 / 0 for _ in range(1)))
    assert relation.update(deletes=[1]).version == 2


def test_loser_of_a_race_for_a_new_folder_leaves_the_winners_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with scratch_folder() as folder:
        path, real = folder / "r", draft.make_folder

        def after_another_has_begun(target: Path) -> bool:
            made = real(target)
            (path / "data").mkdir()
            (path / "data" / "winner.arrow").write_text("x")
            return made

        monkeypatch.setattr(draft, "make_folder", after_another_has_begun)
        path.mkdir()
        with writer_lock(path), pytest.raises(RelationLocked):
            Relation.build(TABLE, path, key="k")
        assert files_under(path) == {"lock", "data/winner.arrow"}


def test_relation_published_while_waiting_for_the_lock_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with scratch_folder() as folder:
        real = draft.writer_lock

        @contextmanager
        def after_another_writer(path: Path, wait_s: float) -> Iterator[None]:
            monkeypatch.setattr(draft, "writer_lock", real)
            Relation.build(pa.table({"other": ["x"]}), path, key="other")
            with real(path, wait_s):
                yield

        monkeypatch.setattr(draft, "writer_lock", after_another_writer)
        with pytest.raises(RelationError, match="already holds a relation"):
            Relation.build(TABLE, folder / "r", key="k")
        assert Relation.open(folder / "r").key == ("other",)


def _child_update(path: Path) -> int:
    return Relation.open(path).update(deletes=[2]).version


def test_processes_write_one_after_the_other(relation: Relation) -> None:
    assert [run_child(_child_update, relation.path) for _ in range(2)] == [(0, 2), (0, 3)]
    assert relation.refreshed().scan().read_all()["k"].to_pylist() == [1, 3]
