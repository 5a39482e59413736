"""``semistream join``: the results equal DuckDB's, and the file exists whole or not at all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from semistream.cli import options
from semistream.cli.options import How
from semistream.errors import CorruptRelation
from semistream.joins.condition.kinds import JoinKind
from semistream.joins.engine.operator import EngineJoin
from semistream.kernels.compiler.stored_code import compiled_here
from semistream.relation import Relation
from semistream.tuning.candidates import OPERATORS
from tests.cli.conftest import read, run, write
from tests.oracle import batch_join, multiset, sql_join

MEMORY = ("--memory", "500kB")
UNSHIPPED = """
from pathlib import Path
from semistream.kernels.compiler.store import STORE, KernelStore
STORE.shipped = Path("nowhere")
KernelStore._folders = lambda self: iter([self.folder])
from semistream.cli.main import run
run()
"""


def test_kinds_of_join_are_those_of_the_library() -> None:
    assert [kind.value for kind in How] == list(get_args(JoinKind))


@pytest.mark.parametrize("how", list(How))
def test_results_are_those_of_duckdb(
    orders: pa.Table, products: pa.Table, stream: Path, relation: Path, tmp_path: Path, how: How
) -> None:
    out = tmp_path / "out.parquet"
    answer = run(
        *("join", stream, relation, "--on", "product=id", "--how", how.value, "--out", out, "--suffix", "_r", "--json"),
        *MEMORY,
    )
    assert answer.code == 0
    expected = batch_join(orders, products, {"product": "id"}, how.value, ["name", "price"], "_r")
    assert multiset(read(out)) == multiset(expected)
    report = answer.json
    stats = report["stats"]
    assert stats["rows_in"] == 3000 == stats["matched"] + stats["unmatched"]
    assert stats["outputs"] == expected.num_rows
    assert stats["peak_bytes"] <= stats["budget_bytes"] == 500_000
    assert stats["pages_read"] == stats["pages_seek"] + stats["pages_sequential"] > 0
    assert report["out_bytes"] == out.stat().st_size
    assert report["relation_version"] == 1


@pytest.mark.parametrize("source", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("target", ["parquet", "arrow", "csv"])
def test_every_format_goes_in_and_comes_out(
    orders: pa.Table, products: pa.Table, relation: Path, tmp_path: Path, source: str, target: str
) -> None:
    stream, out = write(orders, tmp_path / f"s.{source}"), tmp_path / f"out.{target}"
    answer = run("join", stream, relation, "--on", "product=id", "--out", out, "--columns", "name", *MEMORY)
    assert answer.code == 0
    expected = batch_join(orders, products, {"product": "id"}, "inner", ["name"])
    assert multiset(read(out)) == multiset(expected)


def test_plain_parquet_is_a_relation(orders: pa.Table, products: pa.Table, stream: Path, tmp_path: Path) -> None:
    path, out = write(products, tmp_path / "products.parquet"), tmp_path / "out.parquet"
    answer = run("join", stream, path, "--on", "product=id", "--out", out, "--memory", "16MB", "--json")
    assert answer.code == 0
    expected = batch_join(orders, products, {"product": "id"}, "inner", ["name", "price"])
    assert multiset(read(out)) == multiset(expected)
    refused = run("join", stream, path, "--on", "product=id", "--out", out, "--operator", "hybrid")
    assert refused.code == 1
    assert "semistream relation build" in " ".join(refused.err.split())


def test_a_folder_of_files_is_one_stream(orders: pa.Table, products: pa.Table, relation: Path, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    for number in range(3):
        write(orders.slice(number * 1000, 1000), folder / f"{number}.parquet")
    out = tmp_path / "out.arrow"
    assert run("join", folder, relation, "--on", "product=id", "--out", out, *MEMORY).code == 0
    expected = batch_join(orders, products, {"product": "id"}, "inner", ["name", "price"])
    assert multiset(read(out)) == multiset(expected)


def test_composite_keys_are_given_one_by_one(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "c": [10, 20, 30]})
    stream = write(pa.table({"a": [1, 2, 2], "bb": ["y", "x", "y"]}), tmp_path / "s.parquet")
    source = write(table, tmp_path / "r.parquet")
    assert run("relation", "build", source, tmp_path / "r", "--key", "a", "--key", "b").code == 0
    out = tmp_path / "out.parquet"
    answer = run("join", stream, tmp_path / "r", "--on", "a", "--on", "bb=b", "--out", out, "--memory", "10MB")
    assert answer.code == 0
    rows = sorted(read(out).to_pylist(), key=lambda row: row["c"])
    assert rows == [{"a": 1, "bb": "y", "c": 20}, {"a": 2, "bb": "x", "c": 30}]


def test_conditions_are_given_one_by_one(
    orders: pa.Table, products: pa.Table, stream: Path, relation: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    conditions = ("s.price > r.price", "abs(s.product - r.id) <= 2")
    answer = run(
        "join", stream, relation, *(part for c in conditions for part in ("--where", c)), "--out", out, *MEMORY
    )
    assert answer.code == 0
    expected = sql_join(orders, products, " AND ".join(conditions), "inner", products.column_names)
    assert expected.num_rows
    assert multiset(read(out)) == multiset(expected)


def test_a_condition_that_cannot_be_read_is_shown(stream: Path, relation: Path, tmp_path: Path) -> None:
    answer = run("join", stream, relation, "--where", "s.price ~ r.price", "--out", tmp_path / "o.csv", *MEMORY)
    assert answer.code != 0
    assert "character 9" in answer.err
    assert run("join", stream, relation, "--out", tmp_path / "o.csv", *MEMORY).code != 0


def test_an_empty_result_is_a_file_with_the_columns(relation: Path, orders: pa.Table, tmp_path: Path) -> None:
    stream, out = write(orders.slice(0, 0), tmp_path / "s.parquet"), tmp_path / "out.parquet"
    assert run("join", stream, relation, "--on", "product=id", "--out", out, *MEMORY).code == 0
    assert read(out).column_names == ["order_id", "product", "price", "name", "price_right"]
    assert read(out).num_rows == 0


def test_results_are_written_in_large_row_groups(stream: Path, relation: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert run("join", stream, relation, "--on", "product=id", "--out", out, *MEMORY).code == 0
    assert pa.parquet.ParquetFile(out).metadata.num_row_groups == 1


def test_text_shows_rows_by_outcome_and_the_budget(stream: Path, relation: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    text = run("join", stream, relation, "--on", "product=id", "--how", "left", "--out", out, *MEMORY).out
    for part in ("rows in", "3,000", "unmatched", "pages read", "500 kB", "peak", str(out)):
        assert part in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--on": "produkt=id"}, "Did you mean 'product'?"),
        ({"--on": "product=idd"}, "Did you mean 'id'?"),
        ({"--memory": "1KB"}, "too small for the engine join"),
        ({"--memory": "lots"}, "memory is 'lots'"),
        ({"--columns": "name,nmae"}, "no column 'nmae'"),
        ({"--operator": "magic"}, "operator is 'magic'"),
        ({"S": "none.parquet"}, "none.parquet does not exist"),
        ({"R": "."}, "is not a relation"),
        ({"--out": "out.txt"}, "must end in one of .parquet, .arrow, .csv"),
        ({"--out": "nowhere/out.csv"}, "there is no folder"),
        ({"--out": "."}, "must end in"),
    ],
)
def test_a_refused_join_says_why_and_leaves_nothing(
    stream: Path, relation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    words = {"S": str(stream), "R": str(relation), "--on": "product=id", "--out": "out.parquet", "--memory": "500kB"}
    words |= changed
    answer = run("join", words.pop("S"), words.pop("R"), *(word for pair in words.items() for word in pair), "--json")
    assert answer.code == 1
    assert message in answer.err
    assert answer.err.startswith("semistream: ")
    assert answer.out == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("on", ["=id", "product=", "="])
def test_a_malformed_pair_is_a_usage_error(stream: Path, relation: Path, tmp_path: Path, on: str) -> None:
    answer = run("join", stream, relation, "--on", on, "--out", tmp_path / "out.csv")
    assert answer.code == 2
    assert "S_COLUMN=R_COLUMN" in answer.err


def test_a_column_paired_twice_is_a_usage_error(stream: Path, relation: Path, tmp_path: Path) -> None:
    answer = run("join", stream, relation, "--on", "product=id", "--on", "product=name", "--out", tmp_path / "out.csv")
    assert answer.code == 2
    assert "twice" in answer.err


def test_a_join_that_fails_midway_leaves_the_old_file_and_no_other(
    stream: Path, relation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.parquet"
    out.write_text("old")
    before = sorted(tmp_path.iterdir())
    halfway: list[Any] = []
    flush = EngineJoin.flush

    def break_off(self: EngineJoin) -> Iterator[pa.RecordBatch]:
        for batch in flush(self):
            yield batch
            halfway.extend(path for path in tmp_path.iterdir() if path not in before)
            raise CorruptRelation("page 7 is damaged.")

    monkeypatch.setattr(EngineJoin, "flush", break_off)
    answer = run("join", stream, relation, "--on", "product=id", "--out", out, *MEMORY)
    assert answer.code == 1
    assert answer.err == "semistream: page 7 is damaged.\n"
    assert halfway, "the results were being written when it failed"
    assert sorted(tmp_path.iterdir()) == before
    assert out.read_text() == "old"


def test_a_disk_that_is_full_is_an_error_without_a_traceback(
    stream: Path, relation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    before = sorted(tmp_path.iterdir())
    answer = run("join", stream, relation, "--on", "product=id", "--out", tmp_path / "out.csv", *MEMORY)
    assert answer.code == 1
    assert re.search(r"out.csv cannot be written: No space left on device \([\d,]+ bytes are free\)", answer.err)
    assert sorted(tmp_path.iterdir()) == before


def test_nested_results_do_not_go_into_a_csv(relation: Path, orders: pa.Table, tmp_path: Path) -> None:
    nested = orders.append_column("tags", pa.array([["a", "b"]] * 3000))
    stream, out = write(nested, tmp_path / "s.parquet"), tmp_path / "out.csv"
    answer = run("join", stream, relation, "--on", "product=id", "--out", out, "--memory", "2MB")
    assert answer.code == 1
    assert "list" in answer.err
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


def test_a_small_relation_needs_no_memory_option(stream: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "small", tmp_path / "out.csv"
    Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), path, key="id")
    answer = run("join", stream, path, "--on", "product=id", "--out", out, "--json")
    assert (answer.code, answer.json["stats"]["budget_bytes"]) == (0, 1_000_000)
    assert run("explain", path, "--json").json["memory_bytes"] == 1_000_000
    refused = run("join", stream, path, "--on", "product=id", "--out", out, "--memory", "10%")
    assert refused.code == 1
    assert "it needs at least" in refused.err


def test_columns_can_be_renamed(stream: Path, relation: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    words = ("join", stream, relation, "--on", "product=id", "--out", out)
    assert run(*words, "--columns", "price=unit_price, name").code == 0
    assert read(out).column_names == ["order_id", "product", "price", "unit_price", "name"]
    assert run("explain", relation, "--columns", "price=unit_price").code == 0
    for columns, said in (
        ("price=", "--columns has 'price='; give COLUMN or COLUMN=NAME"),
        ("=x", "--columns has '=x'"),
        ("price=a,price=b", "names R's column 'price' twice"),
    ):
        answer = run(*words, "--columns", columns)
        assert answer.code == 2
        assert said in " ".join(answer.err.replace("│", " ").split())


def test_how_takes_sparks_names(stream: Path, relation: Path, tmp_path: Path) -> None:
    words = ("join", stream, relation, "--on", "product=id", "--out", tmp_path / "out.csv", "--json")
    assert run(*words, "--how", "left_anti").json["how"] == "anti"
    assert run("explain", relation, "--how", "leftouter").code == 0
    refused = run(*words, "--how", "outer")
    assert refused.code == 2
    assert "'outer'; give one of inner, left, semi, anti" in " ".join(refused.err.replace("│", " ").split())


def test_operators_are_listed_in_help_and_in_the_error(stream: Path, relation: Path, tmp_path: Path) -> None:
    assert ["auto", *OPERATORS] == sorted(options.OPERATORS, key=["auto", *OPERATORS].index)
    shown = " ".join(run("join", "--help").out.replace("│", " ").split())
    assert ", ".join(options.OPERATORS) in shown
    refused = run("join", stream, relation, "--on", "product=id", "--out", tmp_path / "o.csv", "--operator", "swep")
    said = " ".join(refused.err.split())
    assert refused.code == 1
    assert f"--operator is 'swep'; give one of {', '.join(options.OPERATORS)}. Did you mean sweep?" in said


def test_errors_name_options_and_not_arguments(
    stream: Path, relation: Path, products: pa.Table, tmp_path: Path
) -> None:
    parquet, out = write(products, tmp_path / "products.parquet"), tmp_path / "out.csv"
    on = ("--on", "product=id")
    for words, said in (
        (["join", stream, relation, *on, "--memory", "1kB"], "Raise --memory to that."),
        (["join", stream, relation, *on, "--memory", "1x"], "--memory is '1x'; give"),
        (["join", stream, relation], "neither --on nor --where; give equal columns (--on), a condition (--where)"),
        (["join", stream, relation, "--where", "s.x ~ 3"], "--where cannot be parsed at character 5"),
        (["join", stream, relation, "--where", "s.price < r.price", "--operator", "engine"], "--operator mesh)"),
        (["join", stream, relation, *on, "--columns", "name=price"], "--columns maps 'name' to 'price'"),
        (["join", stream, relation, *on, "--columns", "price", "--suffix", ""], "another --suffix or fewer --columns"),
        (["join", stream, relation, *on, "--how", "semi", "--columns", "name"], "is not allowed with --how semi"),
        (["join", stream, parquet, *on, "--operator", "hybrid"], "use MeshJoin (--operator mesh)"),
        (["join", stream, relation, *on, "--out", "x.txt"], "--out is 'x.txt'; its name must end in"),
        (["explain", relation, "--memory", "1kB"], "Raise --memory to that."),
        (["explain", relation, "--rate", "-1"], "--rate is -1.0; give"),
        (["relation", "build", stream, relation, "--key", "product"], "Give --overwrite to publish"),
        (["relation", "build", stream, tmp_path / "n", "--key", "product", "--fill-factor", "3"], "--fill-factor is 3"),
        (["relation", "build", stream, tmp_path / "n", "--key", "product", "--memory", "1"], "--memory is '1'"),
    ):
        answer = run(*words, *(["--out", out] if words[0] == "join" and "--out" not in words else []))
        text = " ".join(answer.err.split())
        assert answer.code == 1, (words, text)
        assert said in text, (words, text)
        assert not re.search(r"\b(memory|on|where|how|columns|suffix|operator|overwrite|key)=", text), text


def test_a_join_that_compiles_says_so_and_its_rate_leaves_that_out(
    stream: Path, relation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("join", stream, relation, "--on", "product=id", "--memory", "1MB", "--out", tmp_path / "out.csv")
    report = run(*words, "--json").json
    assert (report["compiled_kernels"], report["compile_seconds"]) == (0, 0)
    assert report["rows_per_s"] == pytest.approx(3000 / report["seconds"], rel=0.2)
    assert "without compiling" not in run(*words).out
    push = EngineJoin.push

    def compiling(self: EngineJoin, batch: pa.RecordBatch) -> Any:
        time.sleep(0.3)
        monkeypatch.setattr(compiled_here, "kernels", compiled_here.kernels + 2)
        monkeypatch.setattr(compiled_here, "seconds", compiled_here.seconds + 0.3)
        return push(self, batch)

    monkeypatch.setattr(EngineJoin, "push", compiling)
    report = run(*words, "--json").json
    assert (report["compiled_kernels"], report["compile_seconds"]) == (2, 0.3)
    assert report["seconds"] > 0.3
    assert report["rows_per_s"] == pytest.approx(3000 / (report["seconds"] - 0.3), rel=0.05)
    text = run(*words).out
    assert "2 kernels in 0.30 s, once" in text
    assert "rows/s without compiling)" in text


def test_a_first_join_in_an_empty_cache_reports_its_compiling(stream: Path, relation: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-c", UNSHIPPED, "join", stream, relation, "--on", "product=id", "--json", "--out"]
    settings = {**os.environ, "SEMISTREAM_KERNELS": str(tmp_path / "kernels"), "NUMBA_OPT": "0"}
    done = subprocess.run(
        [*map(str, line), str(tmp_path / "out.csv"), "--operator", "resident"],
        capture_output=True,
        check=True,
        env=settings,
    )
    report = json.loads(done.stdout)
    assert report["compiled_kernels"] > 0
    assert 0 < report["compile_seconds"] < report["seconds"]
    assert report["rows_per_s"] > 3000 / report["seconds"]
