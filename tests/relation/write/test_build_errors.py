"""Refused builds and opens name the value, the limit and the next step, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from semistream.errors import (
    BudgetError,
    ColumnNotFound,
    InvalidArgument,
    KeyTypeError,
    NotARelation,
    RelationError,
)
from semistream.relation import Relation
from tests.relation.row_sets import files_under

TAGS = pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))
TABLE = pa.table({"id": [1, 2], "name": ["a", "b"], "tags": TAGS})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": "idd"}, ColumnNotFound, r"no column 'idd'; it has 'id', 'name', 'tags'\. Did you mean 'id'\?"),
        ({"key": ["id", "x"]}, ColumnNotFound, "no column 'x'"),
        ({"key": []}, InvalidArgument, "key is empty"),
        ({"key": ["id", "id"]}, InvalidArgument, "names a column twice"),
        ({"key": "tags"}, KeyTypeError, "'tags' has type map<.*cannot be a join key"),
        ({"key": ["id", "tags"]}, KeyTypeError, "cannot be a join key"),
        ({"page_bytes": 10**19}, InvalidArgument, "page_bytes is 10000000000000000000; give at most 1073741824"),
        ({"page_bytes": 511}, InvalidArgument, "page_bytes is 511; give at least 512"),
        ({"page_bytes": 0}, InvalidArgument, "at least 512"),
        ({"page_bytes": -1}, InvalidArgument, "at least 512"),
        ({"fill_factor": 0.05}, InvalidArgument, r"fill_factor is 0\.05; give a number between 0\.1 and 1\.0"),
        ({"fill_factor": 1.01}, InvalidArgument, "fill_factor"),
        ({"fill_factor": float("nan")}, InvalidArgument, "fill_factor is nan"),
        ({"memory": "1MB"}, BudgetError, "memory is '1MB'; the sort needs at least 128000000 bytes"),
        ({"memory": "10%"}, BudgetError, "no relation here"),
        ({"memory": "lots"}, BudgetError, "memory is 'lots'"),
        ({"memory": 0}, BudgetError, "more than zero"),
    ],
)
def test_options_that_cannot_work(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Relation.build(TABLE, tmp_path / "r", **{"key": "id", **options})
    assert list(tmp_path.iterdir()) == []


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = pa.table([[1], [2], [3]], names=["k", "v", "v"])
    with pytest.raises(InvalidArgument, match="the data has several columns called v; rename them"):
        Relation.build(twice, tmp_path / "r", key="k")


def test_relation_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    Relation.build(TABLE, tmp_path / "r", key="id")
    with pytest.raises(RelationError, match=r"already holds a relation\. Give overwrite=True"):
        Relation.build(TABLE, tmp_path / "r", key="id")
    again = Relation.build(TABLE.slice(0, 1), tmp_path / "r", key="id", overwrite=True)
    assert (again.version, again.num_rows, again.versions()) == (2, 1, [1, 2])


def test_failed_rebuild_leaves_the_old_version_and_its_files(tmp_path: Path) -> None:
    Relation.build(TABLE, tmp_path / "r", key="id")
    files = files_under(tmp_path)

    def failing() -> Any:
        yield TABLE.to_batches()[0]
        raise RuntimeError("source broke")

    with pytest.raises(RuntimeError, match="source broke"):
        Relation.build(failing(), tmp_path / "r", key="id", overwrite=True)
    assert files_under(tmp_path) == files
    assert Relation.open(tmp_path / "r").verify().rows == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_of_other_files_is_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RelationError, match=r"holds other files \(thesis\.tex\)\. Give an empty or new path"):
        Relation.build(TABLE, tmp_path, key="id", overwrite=overwrite)
    assert files_under(tmp_path) == {"thesis.tex"}


def test_file_as_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("x")
    with pytest.raises(RelationError, match="is a file; a relation is a folder"):
        Relation.build(TABLE, tmp_path / "r", key="id", overwrite=True)
    with pytest.raises(NotARelation, match="is not a relation: it has no file CURRENT"):
        Relation.open(tmp_path / "r")
    with pytest.raises(OSError, match="Not a directory"):
        Relation.build(TABLE, tmp_path / "r" / "deeper", key="id")
    assert (tmp_path / "r").read_text() == "x"


def test_folders_on_the_way_are_made_and_an_empty_one_is_used(tmp_path: Path) -> None:
    assert Relation.build(TABLE, str(tmp_path / "a" / "b" / "r"), key="id").num_rows == 2
    (tmp_path / "empty").mkdir()
    assert Relation.build(TABLE, tmp_path / "empty", key="id").num_rows == 2


def test_failed_build_in_an_existing_folder_leaves_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        Relation.build(TABLE, tmp_path, key="id", progress=lambda *_: 1 // 0)
    assert files_under(tmp_path) == {"lock"}
    assert Relation.build(TABLE, tmp_path, key="id").version == 1


def test_path_without_a_relation(tmp_path: Path) -> None:
    with pytest.raises(NotARelation, match=r"absent does not exist\. Build one with Relation\.build"):
        Relation.open(tmp_path / "absent")
    with pytest.raises(NotARelation, match="is not a relation: it has no file CURRENT"):
        Relation.open(tmp_path)
    with pytest.raises(NotARelation):
        Relation.open(tmp_path, version=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [0, 2, -1, 10**9])
def test_version_that_is_not_there(tmp_path: Path, version: int) -> None:
    Relation.build(TABLE, tmp_path / "r", key="id")
    with pytest.raises(RelationError, match=f"has no version {version}; it has 1"):
        Relation.open(tmp_path / "r", version=version)


def test_unknown_columns_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    relation = Relation.build(TABLE, tmp_path / "r", key="id")
    with pytest.raises(ColumnNotFound, match="has no column 'nmae'; it has 'id', 'name', 'tags'"):
        relation.scan(["nmae"])
    with pytest.raises(ColumnNotFound, match="Did you mean 'name'"):
        relation.lookup([1], ["nmae"])
