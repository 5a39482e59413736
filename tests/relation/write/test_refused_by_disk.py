"""What the disk refuses is told by a `StorageError` with the file, the reason and the next step; nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream
from semistream.errors import StorageError
from semistream.relation import Relation
from tests.relation.child_process import limit_file_size, run_child
from tests.relation.row_sets import files_under

NOBODY = 65534
TABLE = pa.table({"k": range(2000), "v": range(2000)})
STREAM = pa.table({"s": range(50)})

READS: dict[str, Callable[[Relation], Any]] = {
    "open": lambda relation: Relation.open(relation.path),
    "verify": Relation.verify,
    "scan": lambda relation: relation.scan().read_all(),
    "lookup": lambda relation: relation.lookup([1, 2]),
    "join": lambda relation: semistream.join(STREAM, relation, on={"s": "k"}).read_all(),
}
WRITES: dict[str, Callable[[Relation], Any]] = {
    "update": lambda relation: relation.update(deletes=[1]),
    "build": lambda relation: Relation.build(TABLE, relation.path / "more" / "r", key="k"),
    "rebuild": lambda relation: Relation.build(TABLE, relation.path, key="k", overwrite=True),
    "vacuum": Relation.vacuum,
}


def _powerless() -> None:
    if os.getuid() == 0:  # whom permissions do not bind
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _try(path: Path, name: str, closed: list[Path], mode: int) -> str:
    relation = Relation.open(path)
    for read in READS.values():
        read(relation)  # all imports are done before this process may read nothing
    for each in closed:
        each.chmod(mode)
    _powerless()
    (READS | WRITES)[name](relation)
    return "done"


def _try_without_space(path: Path, name: str) -> str:
    relation = Relation.open(path)
    limit_file_size(20)
    WRITES[name](relation)
    return "done"


@pytest.fixture
def relation(tmp_path: Path) -> Relation:
    for folder in (tmp_path, *tmp_path.parents[:3]):  # pytest's own and its worker's, closed to other users
        folder.chmod(0o755)
    Relation.build(TABLE, tmp_path / "r", key="k")
    return Relation.open(tmp_path / "r").update(upserts=pa.table({"k": [1], "v": [0]}))


@pytest.mark.parametrize("name", [*WRITES, *READS])
def test_without_permission(relation: Relation, name: str) -> None:
    paths = [relation.path, *(path for path in relation.path.rglob("*") if path.is_dir())]
    before = files_under(relation.path)
    paths = list(reversed(paths)) if name in WRITES else list(relation.path.rglob("*.arrow"))
    code, told = run_child(_try, relation.path, name, paths, 0o555 if name in WRITES else 0o000)
    for path in relation.path.rglob("*"):
        path.chmod(0o755)
    relation.path.chmod(0o755)
    assert code == 0
    assert told.startswith(f"{StorageError.__name__}: {relation.path}")
    assert "Permission denied. Next: give this user permission to do so" in told
    assert files_under(relation.path) == before
    assert Relation.open(relation.path).verify().rows == 2000


@pytest.mark.parametrize("name", ["update", "build", "rebuild"])
def test_without_space(relation: Relation, name: str) -> None:
    """A limit on the size of files stands for a full disk: the writes fail in the same calls."""
    before = files_under(relation.path)
    code, told = run_child(_try_without_space, relation.path, name)
    assert code == 0
    assert told.startswith(f"{StorageError.__name__}: {relation.path}")
    assert files_under(relation.path) == before
    assert Relation.open(relation.path).verify().rows == 2000


def test_a_file_where_a_folder_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match=r"file.* cannot be created: Not a directory\. Next: give a path of folders"):
        Relation.build(TABLE, tmp_path / "file" / "r", key="k")


def test_temporary_files_follow_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone who guesses the name can make the write fail, but not send it elsewhere."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".CURRENT.guessed.tmp").symlink_to(victim)
    with pytest.raises(StorageError, match="File exists"):
        Relation.build(TABLE, tmp_path / "r", key="k")
    assert victim.read_text() == "precious"
