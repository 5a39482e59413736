"""``semistream relation``: its work, its reports and its errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from semistream.relation import Relation
from semistream.relation.format.pins import Pin, write_pin
from tests.cli.conftest import run, write


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_build_makes_a_relation_of_every_kind_of_file(products: pa.Table, tmp_path: Path, ending: str) -> None:
    source = write(products, tmp_path / f"source.{ending}")
    answer = run("relation", "build", source, tmp_path / "r", "--key", "id", "--page-bytes", 4096, "--json")
    assert answer.code == 0
    built = Relation.open(tmp_path / "r")
    assert built.scan().read_all().num_rows == 2003
    assert {**answer.json, "seconds": 0} == {
        "path": str(tmp_path / "r"),
        "version": 1,
        "rows": 2003,
        "null_key_rows": 3,
        "pages": built.num_pages,
        "bytes": built.nbytes,
        "seconds": 0,
        "before": None,
        "rows_before": None,
    }
    assert built.num_pages > 10


def test_build_takes_a_composite_key_and_a_fill_factor(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "c": [1, 2, 3]})
    source = write(table, tmp_path / "source.parquet")
    answer = run("relation", "build", source, tmp_path / "r", "--key", "a", "--key", "b", "--fill-factor", 0.5)
    assert answer.code == 0
    built = Relation.open(tmp_path / "r")
    assert built.key == ("a", "b")
    assert built.manifest.fill_factor == 0.5
    assert "rows" in answer.out


def test_build_puts_columns_into_groups(products: pa.Table, tmp_path: Path) -> None:
    source = write(products, tmp_path / "source.parquet")
    first, second = [name for name in products.column_names if name != "id"][:2]
    asked = ("relation", "build", source, tmp_path / "r", "--key", "id")
    answer = run(*asked, "--column-group", first, "--column-group", f"{second},id")
    assert answer.code == 0
    info = run("relation", "info", tmp_path / "r", "--json").json
    assert [first] in info["column_groups"][1:]
    assert {"id", second} <= set(info["column_groups"][0])
    assert "group" in run("relation", "info", tmp_path / "r").out
    refused = run(*asked, "--overwrite", "--column-group", f"{first}s")
    assert refused.code == 1
    assert f"Did you mean '{first}'?" in refused.err


def test_build_refuses_to_replace_a_relation_unless_told(stream: Path, relation: Path) -> None:
    refused = run("relation", "build", stream, relation, "--key", "order_id")
    assert refused.code == 1
    assert "already holds a relation" in refused.err
    assert Relation.open(relation).key == ("id",)
    allowed = run("relation", "build", stream, relation, "--key", "order_id", "--overwrite", "--json")
    assert allowed.code == 0
    assert allowed.json["version"] == 2
    assert Relation.open(relation).key == ("order_id",)


def test_build_with_a_wrong_key_names_the_columns_and_leaves_nothing(stream: Path, tmp_path: Path) -> None:
    answer = run("relation", "build", stream, tmp_path / "r", "--key", "produkt")
    assert answer.code == 1
    assert "no column 'produkt'" in answer.err
    assert "Did you mean 'product'?" in answer.err
    assert answer.out == ""
    assert not (tmp_path / "r").exists()


def test_build_without_a_key_is_a_usage_error(stream: Path, tmp_path: Path) -> None:
    answer = run("relation", "build", stream, tmp_path / "r")
    assert answer.code == 2
    assert "--key" in answer.err


def test_build_of_a_missing_source_says_so(tmp_path: Path) -> None:
    answer = run("relation", "build", tmp_path / "none.parquet", tmp_path / "r", "--key", "id")
    assert answer.code == 1
    assert "none.parquet does not exist" in answer.err


def test_build_of_a_file_that_is_not_parquet_says_so(tmp_path: Path) -> None:
    (tmp_path / "junk.parquet").write_text("junk")
    answer = run("relation", "build", tmp_path / "junk.parquet", tmp_path / "r", "--key", "id")
    assert answer.code == 1
    assert "junk.parquet" in answer.err
    assert "Traceback" not in answer.err


def test_info_says_what_the_relation_is(relation: Path) -> None:
    answer = run("relation", "info", relation, "--json")
    assert answer.code == 0
    opened = Relation.open(relation)
    info = answer.json
    assert info["rows"] == 2003
    assert info["null_key_rows"] == 3
    assert info["key"] == ["id"]
    assert info["version"] == 1
    assert info["versions"] == [1]
    assert info["pages"] == opened.num_pages
    assert info["bytes"] == opened.nbytes
    assert info["page_bytes"] == 4096
    assert info["columns"][0] == {"name": "id", "type": "int64", "nullable": True}
    sizes = opened.table.nbytes
    assert info["bytes_per_page"]["least"] == sizes.min()
    assert info["bytes_per_page"]["most"] == sizes.max() <= 4096
    assert info["rows_per_page"]["least"] <= info["rows_per_page"]["median"] <= info["rows_per_page"]["p90"]


def test_info_as_text_shows_the_same(relation: Path) -> None:
    text = run("relation", "info", relation).out
    for part in ("2,003", "null-key rows", "3 (unreachable by joins)", "key 1", "double", "bytes per page"):
        assert part in text


def test_info_of_an_empty_relation_has_no_pages(tmp_path: Path) -> None:
    Relation.build(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "r", key="id")
    answer = run("relation", "info", tmp_path / "r", "--json")
    assert answer.json["bytes_per_page"] is None
    assert "no pages" in run("relation", "info", tmp_path / "r").out


def test_info_opens_an_old_version(relation: Path) -> None:
    Relation.open(relation).update(deletes=[1, 2])
    assert run("relation", "info", relation, "--json").json["rows"] == 2001
    assert run("relation", "info", relation, "--version", 1, "--json").json["rows"] == 2003
    refused = run("relation", "info", relation, "--version", 9)
    assert refused.code == 1
    assert "has no version 9; it has 1, 2" in refused.err


def test_info_of_a_folder_that_is_no_relation_says_so(tmp_path: Path) -> None:
    answer = run("relation", "info", tmp_path, "--json")
    assert answer.code == 1
    assert "is not a relation" in answer.err
    assert answer.out == ""


def test_verify_tells_an_intact_relation_from_a_damaged_one(relation: Path) -> None:
    intact = run("relation", "verify", relation, "--json")
    assert intact.code == 0
    assert intact.json["ok"] is True
    assert intact.json["rows"] == 2003
    file = relation / Relation.open(relation).manifest.files[0].name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    damaged = run("relation", "verify", relation, "--json")
    assert damaged.code == 1
    assert damaged.out == ""
    assert "page" in damaged.err


def test_update_applies_upserts_and_deletes(relation: Path, tmp_path: Path) -> None:
    upserts = pa.table({"id": [5, 5000], "name": ["five", "new"], "price": [5.0, 6.0]})
    deletes = pa.table({"why": ["old", "gone"], "id": [7, 8]})
    answer = run(
        *("relation", "update", relation, "--json"),
        *("--upserts", write(upserts, tmp_path / "upserts.csv")),
        *("--deletes", write(deletes, tmp_path / "deletes.csv")),
    )
    assert answer.code == 0
    assert (answer.json["version"], answer.json["before"]) == (2, 1)
    assert (answer.json["rows"], answer.json["rows_before"]) == (2002, 2003)
    found = Relation.open(relation).lookup([5, 7, 8, 5000]).to_pylist()
    assert found == [{"id": 5, "name": "five", "price": 5.0}, {"id": 5000, "name": "new", "price": 6.0}]


def test_update_with_nothing_to_do_is_a_usage_error(relation: Path) -> None:
    answer = run("relation", "update", relation)
    assert answer.code == 2
    assert "--upserts" in answer.err


def test_update_with_deletes_that_lack_the_key_says_so(relation: Path, tmp_path: Path) -> None:
    answer = run("relation", "update", relation, "--deletes", write(pa.table({"idd": [1]}), tmp_path / "d.csv"))
    assert answer.code == 1
    assert "no column 'id'" in answer.err
    assert Relation.open(relation).version == 1


def test_vacuum_names_who_needs_an_old_version(relation: Path) -> None:
    write_pin(relation, "orders-1", Pin(1, "the pipeline 'orders'"))
    Relation.open(relation).update(deletes=[0])
    answer = run("relation", "vacuum", relation, "--json").json
    assert answer["versions"] == [1, 2]
    assert answer["needed"] == {"1": ["the pipeline 'orders'"]}
    assert "version 1: needed by the pipeline 'orders'" in run("relation", "vacuum", relation).out


def test_vacuum_removes_old_versions_and_names_them(relation: Path) -> None:
    for key in (1, 2):
        Relation.open(relation).update(deletes=[key])
    answer = run("relation", "vacuum", relation, "--keep", 2, "--json")
    assert answer.code == 0
    assert answer.json["versions"] == [2, 3]
    assert any("000001" in name for name in answer.json["removed"])
    assert run("relation", "vacuum", relation, "--keep", 0).code == 2
    assert run("relation", "verify", relation).code == 0


@pytest.mark.parametrize("exists", [False, True])
def test_where_there_is_no_relation_the_command_that_makes_one_is_named(exists: bool, tmp_path: Path) -> None:
    path = tmp_path / "r"
    if exists:
        path.mkdir()
    for command in (("relation", "info"), ("relation", "verify"), ("relation", "vacuum")):
        answer = run(*command, path)
        assert answer.code == 1
        said = " ".join(answer.err.split())
        assert f"{path} {'is not a relation' if exists else 'does not exist'}" in said
        assert said.endswith("Build one with `semistream relation build SOURCE PATH --key COLUMN`.")


def test_no_command_takes_a_path_with_a_scheme(
    relation: Path, stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    url = "s3://bucket/x.parquet"
    for words in (
        ["relation", "build", url, "r", "--key", "id"],
        ["relation", "build", stream, url, "--key", "product"],
        ["relation", "info", url],
        ["relation", "update", relation, "--upserts", url],
        ["relation", "update", relation, "--deletes", url],
        ["join", url, relation, "--on", "product=id", "--out", "out.csv"],
        ["join", stream, url, "--on", "product=id", "--out", "out.csv"],
        ["join", stream, relation, "--on", "product=id", "--memory", "1MB", "--out", url],
        ["explain", url],
        ["explain", relation, "--plot", "s3://bucket/x.png"],
        ["explain", relation, "--sample", url],
        ["validate", "s3://bucket/x.yaml"],
        ["status", "s3://bucket/x.yaml"],
        ["calibrate", "--on", url],
        ["compile", "--into", url],
        ["demo", "--out", url],
    ):
        answer = run(*words)
        assert answer.code == 1, words
        assert "has the scheme 's3'" in answer.err, words
    assert list(folder.iterdir()) == []
