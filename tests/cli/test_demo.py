"""``semistream demo``: its data, its check, its requirements, and a whole run at a small scale."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from semistream.cli.demo.check import compare_with_duckdb
from semistream.cli.demo.data import DemoWorkload
from semistream.cli.demo.folder import DemoFolder
from semistream.errors import InvalidArgument
from tests.cli.conftest import run

WORKLOAD = DemoWorkload(orders=20_000, products=1000, mean_batch=1000, seed=5)


def make_java(folder: Path, says: str, code: int = 0) -> Path:
    """A command ``java`` that says something about its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("home", [True, False], ids=["JAVA_HOME", "PATH"])
def test_without_java_the_demo_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path)) if home else monkeypatch.delenv("JAVA_HOME", raising=False)
    answer = run("demo", "--out", tmp_path / "out")
    assert answer.code == 1
    assert "Java 17 or newer" in answer.err
    assert "apt-get install openjdk-17-jre-headless" in answer.err
    assert "brew install openjdk@17" in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11; Spark needs 17"),
        ('java version "1.8.0_281"', "is Java 8; Spark needs 17"),
        ("Unable to locate a Java Runtime.", "does not start: Unable to locate a Java Runtime."),
    ],
)
def test_a_java_that_will_not_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, message: str
) -> None:
    make_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    answer = run("demo", "--out", tmp_path / "out")
    assert answer.code == 1
    assert message in answer.err
    assert "openjdk-17-jre-headless" in answer.err
    assert not (tmp_path / "out").exists()


def test_without_the_extras_the_demo_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semistream.cli.options.find_spec", lambda name: None)
    answer = run("demo", "--out", tmp_path / "out")
    assert answer.code == 1
    assert "pyspark and pandas and deltalake and matplotlib" in answer.err
    assert "pip install 'semistream[spark,delta,plot]'" in answer.err
    assert not (tmp_path / "out").exists()


def test_the_demo_empties_its_own_folder_and_no_other(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    DemoFolder.make(mine).orders.mkdir(parents=True)
    assert not DemoFolder.make(mine).orders.exists()
    with pytest.raises(InvalidArgument, match="holds other files"):
        DemoFolder.make(tmp_path)
    assert mine.exists()


def test_orders_come_in_bursts_and_some_are_for_unknown_products(tmp_path: Path) -> None:
    sizes = WORKLOAD.write_orders(tmp_path / "orders")
    files = sorted((tmp_path / "orders").iterdir())
    orders = pa.concat_tables(pa.parquet.read_table(file) for file in files)
    assert sum(sizes) == 20_000 == orders.num_rows == pc.count_distinct(orders["order_id"]).as_py()
    assert max(sizes) > 3 * np.median(sizes) or min(sizes) < np.median(sizes) / 3
    unknown = pc.sum(pc.greater_equal(orders["product_id"], 1000)).as_py()
    assert 0 < unknown < 2_000
    assert 0 < pc.sum(pc.equal(orders["quantity"], 0)).as_py() < 200


def test_the_data_is_the_same_for_a_seed(tmp_path: Path) -> None:
    assert list(WORKLOAD.order_batches()) == list(WORKLOAD.order_batches())
    for name in ("a.parquet", "b.parquet"):
        WORKLOAD.write_products(tmp_path / name)
    tables = [pa.parquet.read_table(tmp_path / name).sort_by("id") for name in ("a.parquet", "b.parquet")]
    assert tables[0] == tables[1]
    assert tables[0].num_rows == 1000
    assert tables[0].nbytes / 1000 > 100


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("FROM joined", (0, 0)),
        ("FROM joined WHERE order_id > 0", (1, 0)),
        ("FROM joined UNION ALL (FROM joined WHERE order_id = 3)", (0, 1)),
        ("SELECT * REPLACE (if(order_id = 9, 0, price) AS price) FROM joined", (1, 1)),
        ("SELECT * REPLACE (customer_key + (order_id = 9)::BIGINT AS customer_key) FROM joined", (0, 0)),
    ],
    ids=["equal", "a row missing", "a row twice", "a value wrong", "a key wrong"],
)
def test_the_check_finds_every_difference(tmp_path: Path, query: str, found: tuple[int, int]) -> None:
    for name in ("products", "customers", "stores"):
        getattr(WORKLOAD, f"write_{name}")(tmp_path / f"{name}.parquet")
    WORKLOAD.write_orders(tmp_path / "orders")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE VIEW joined AS SELECT o.*, p.* EXCLUDE (id), segment, country, city, "
            f"CAST(substr(customer, 2) AS BIGINT) + 1 AS customer_key FROM '{tmp_path}/orders/*.parquet' AS o "
            f"JOIN '{tmp_path}/products.parquet' AS p ON product_id = p.id LEFT JOIN '{tmp_path}/customers.parquet' "
            f"ON customer = code JOIN '{tmp_path}/stores.parquet' AS s ON store_id = s.id WHERE quantity > 0"
        )
        connection.execute(f"COPY ({query}) TO '{tmp_path}/written.parquet'")
    compared = compare_with_duckdb(
        [tmp_path / "written.parquet"],
        sorted((tmp_path / "orders").iterdir()),
        [tmp_path / "products.parquet"],
        tmp_path,
        keys=WORKLOAD.customers,
    )
    assert (compared.missing, compared.unexpected) == found
    assert compared.equal == (query == "FROM joined")
    assert sum(compared.outcomes.values()) == WORKLOAD.orders
    assert all(compared.outcomes.values())


@pytest.mark.spark
@pytest.mark.slow
def test_the_whole_demo_at_a_small_scale(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'semistream[spark,delta,plot]' to run this")
    pytest.importorskip("deltalake", reason="pip install 'semistream[spark,delta,plot]' to run this")
    pytest.importorskip("matplotlib", reason="pip install 'semistream[spark,delta,plot]' to run this")
    out = tmp_path / "out"
    scale = [
        "--orders",
        "6000",
        "--products",
        "60000",
        "--mean-batch",
        "1200",
        "--spark-batches",
        "2",
        "--every",
        "0.3",
    ]
    code = "from semistream.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", "--out", str(out), "--json", *scale],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "160"},  # as on a terminal, with bars
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    ours, left, inner = report["ours"], report["left"], report["inner"]
    assert sum(ours["outcomes"].values()) == 6000 == sum(batch["rows"] for batch in ours["batches"])
    assert all(ours["outcomes"].values()), "every way an order can end is there"
    assert 0 < ours["joined_late"] < ours["waited"]
    assert report["equals_duckdb"] == {"semistream": True, "left": True, "inner": True}
    assert [batch["number"] for batch in ours["batches"]] == list(range(len(ours["batches"])))
    assert 0 < ours["kill"]["batch"] < len(ours["batches"])
    assert "killed in batch" in done.stderr
    for own in (left, inner):
        assert [batch["rows"] for batch in own["batches"]] == [batch["rows"] for batch in ours["batches"][:2]]
        arrivals = [batch["at"] - batch["lag_s"] for batch in own["batches"]]
        assert arrivals == sorted(arrivals), "an order's file arrives after the one before it, during a batch or not"
        assert all(batch["lag_s"] > 0 < batch["seconds"] for batch in own["batches"])
    assert 0 < ours["peak_bytes"] <= report["memory_bytes"]
    assert all(batch["bytes_moved"] > 0 for batch in ours["batches"])
    plot = Path(tmp_path / report["files"]["picture"])
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"], "nothing is left elsewhere"
    assert (out / "spark.log").stat().st_size > 0
    assert "Traceback" not in done.stderr
    assert "WARN" not in done.stderr
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stderr).replace("\r", "\n")
    counted = re.findall(r"^ \S.*? +(\d+)/(\d+) +[\d,]+ orders", shown, re.MULTILINE)
    assert len(counted) >= len(ours["batches"]) + 2
    assert all(int(count) <= int(total) for count, total in counted)
    assert [line[:3] for line in shown.splitlines() if re.search(r"\d/5  ", line)] == [f"{i}/5" for i in range(1, 6)]
