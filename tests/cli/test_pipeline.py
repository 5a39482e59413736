"""``semistream validate``, ``run``, ``status``, ``vacuum`` and ``explain`` of a pipeline."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from semistream.pipelines.ledger.ledger import Ledger
from semistream.relation import Relation
from tests.cli.conftest import Answer, run

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

LEDGER = ("lock", "pipeline.json")
LINE = "from semistream.cli.main import run; run()"


def content() -> dict[str, Any]:
    """A pipeline of two look-ups, with paths relative to its file."""
    return {
        "name": "orders",
        "source": {
            "format": "parquet",
            "path": "orders",
            "schema": {"id": "bigint", "product": "bigint", "customer": "string"},
            "files_per_batch": 1,
        },
        "steps": [
            {"surrogate_key": {"relation": "keys", "key": "customer", "into": "customer_key"}},
            {"join": {"relation": "products", "on": {"product": "id"}}},
        ],
        **{name: {"format": "parquet", "path": f"tables/{name}"} for name in ("sink", "unmatched", "quarantine")},
        "checkpoint": "checkpoint",
        "memory": "8MB",
        "every": "100ms",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source of two files, products, and the pipeline's file."""
    (tmp_path / "orders").mkdir()
    for number in range(2):
        ids = range(number * 100, number * 100 + 100)
        orders = {"id": ids, "product": [i % 60 for i in ids], "customer": [f"c{i % 7}" for i in ids]}
        pq.write_table(pa.table(orders), tmp_path / "orders" / f"{number}.parquet")
    products = {"id": range(50), "price": [i / 4 for i in range(50)]}
    Relation.build(pa.table(products), tmp_path / "products", key="id")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(content(), sort_keys=False))
    return tmp_path


def changed(folder: Path, *path: object, value: Any) -> Path:
    """Return the pipeline with another value somewhere; add missing keys."""
    whole = content()
    part: Any = whole
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    file = folder / "changed.yaml"
    file.write_text(yaml.safe_dump(whole, sort_keys=False))
    return file


def entries(folder: Path) -> dict[str, int]:
    """All files below a folder, with their sizes."""
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def refused(answer: Answer) -> str:
    assert (answer.code, answer.out) == (1, "")
    assert "Traceback" not in answer.err
    return answer.err


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("source", "path"), "nowhere", r"source \S*/nowhere is not a folder\. Create it"),
        (("steps", 1, "join", "relation"), "prodcts", r"step 2 \(prodcts\): .* `semistream relation build"),
        (("steps", 1, "join", "on"), {"produkt": "id"}, r"step 2 \(products\): .* 'produkt'; .*mean 'product'\?"),
        (("steps", 1, "join", "unmatchd"), "retry", r"steps\[1\]\.join\.unmatchd: .* Did you mean 'unmatched'\?"),
        (("steps", 0, "surrogate_key", "key"), "x", r"step 1 \(keys\): .* has no column 'x'; it has 'id', 'pr"),
        (("memory",), "1KB", r"step 1 \(keys\) has 500 B of .* Raise the pipeline's memory to at least \d+"),
        (("sink", "path"), "${NO_SUCH_PLACE}", r"uses \$\{NO_SUCH_PLACE\}, but .* has no NO_SUCH_PLACE\. Set it"),
    ],
    ids=["source", "relation", "on", "misspelt", "key", "budget", "environment"],
)
def test_what_is_wrong_is_named_with_the_next_step(folder: Path, path: Any, value: Any, said: str) -> None:
    file = changed(folder, *path, value=value)
    before = entries(folder)
    for command in ("validate", "run"):
        assert re.search(said, refused(run(command, file)).replace("\n", " "))
    assert entries(folder) == before


@pytest.mark.parametrize(("package", "extra"), [("pyspark", "spark"), ("deltalake", "delta")])
def test_a_package_that_is_missing_is_named(folder: Path, package: str, extra: str) -> None:
    file = changed(folder, "sink", "format", value="delta")
    hidden = f"""
import importlib.util, sys
sys.modules[{package!r}] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {package!r} else find(name, *rest)
{LINE}
"""
    words = [sys.executable, "-c", hidden, "validate", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert package in done.stderr
    assert f"semistream[{extra}]" in done.stderr
    assert "Traceback" not in done.stderr


def test_validate_says_what_comes_out_and_writes_nothing(folder: Path) -> None:
    before = entries(folder)
    found = run("validate", folder / "p.yaml", "--json").json
    assert list(found["columns"]) == ["id", "product", "customer", "customer_key", "price"]
    assert [(each["step"], each["rows"]) for each in found["relations"]] == [("keys", None), ("products", 50)]
    assert found["memory_bytes"] == 8_000_000
    text = run("validate", folder / "p.yaml")
    assert "is valid" in text.out
    assert "created by run" in text.out
    assert entries(folder) == before


def test_validate_knows_columns_that_spark_computes(folder: Path, spark: Any) -> None:
    steps = [{"compute": {"half": "product div 2"}}, {"join": {"relation": "products", "on": {"half": "id"}}}]
    found = run("validate", changed(folder, "steps", value=steps), "--json").json
    assert list(found["columns"]) == ["id", "product", "customer", "half", "price"]
    wrong = changed(folder, "steps", value=[{"compute": {"half": "produkt div 2"}}, steps[1]])
    assert "compute: half is 'produkt div 2'" in refused(run("validate", wrong))
    assert spark.range(3).count() == 3, "a session that was there goes on"


def test_explain_says_what_to_expect_of_every_join(folder: Path) -> None:
    before = entries(folder)
    found = run("explain", folder / "p.yaml", "--slots", 3, "--batch-rows", 6000, "--json").json
    assert (found["slots"], found["batch_rows"], found["total_memory_bytes"]) == (3, 6000, 24_000_000)
    keys, products = found["steps"]
    assert (keys["worker"], keys["note"]) == (None, "the relation has no rows yet, so nothing is read")
    assert 500_000 <= products["worker"]["memory_bytes"] < 8_000_000  # it is small, and is held as a whole
    assert products["rows_per_s"] > 0
    text = run("explain", folder / "p.yaml", "--memory", "1MB")
    assert "route: range" in text.out
    assert products["worker"]["choice"]["operator"] in text.out
    assert run("explain", folder / "p.yaml", "--on", "id").code == 2
    assert run("explain", folder / "products", "--slots", 2).code == 2
    assert entries(folder) == before


def test_run_status_and_vacuum(folder: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "p.yaml"
    assert "has not run" in refused(run("status", file))
    measured: list[Path] = []
    monkeypatch.setattr(
        "semistream.tuning.calibration.calibrate.calibrate_where_unknown",
        lambda paths, progress: measured.extend(paths),
    )
    report = run("run", file, "--once", "--calibrate", "--json").json
    assert measured == [folder / "products"], "the disks of relations that are there, and there are no keys yet"
    assert (report["batches"], report["rows_in"]) == (2, 200)
    assert report["outcomes"]["joined"] == sum(i % 60 < 50 for i in range(200))
    assert sum(report["outcomes"].values()) == 200
    state = run("status", file, "--json").json
    assert (state["last_batch"], state["unfinished"], len(state["recent"])) == (1, None, 2)
    text = run("status", file).out
    assert "joined" in text
    assert "last finished batch" in text
    checkpoint = json.loads((folder / "checkpoint" / "pipeline.json").read_text())
    staging = folder / "tables" / "sink" / "_staging"
    staging.mkdir(exist_ok=True)
    orphan, other = staging / f"{checkpoint['name']}-{checkpoint['token']}-9.parquet", staging / "of others.parquet"
    for path in (orphan, other):
        path.write_bytes(b"what a killed worker has left")
    assert run("vacuum", file, "--json").json["removed"] == [str(orphan)]
    assert (orphan.exists(), other.exists()) == (False, True)
    lines = [json.loads(line) for line in (folder / "checkpoint" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["last_trigger"] is None
    assert lines[0]["lag_s"] >= 0
    triggers = [json.loads(line) for line in (folder / "checkpoint" / "spark.jsonl").read_text().splitlines()]
    assert [each["source_batch"] for each in triggers] == [0, 1]
    assert all(each["seconds"] >= each["parts_s"]["addBatch"] > 0 for each in triggers)


@pytest.mark.slow
def test_a_terminal_shows_progress_and_control_c_ends_it_well(folder: Path) -> None:
    """A separate process on a pseudo-terminal: Spark would handle Ctrl-C itself unless we prevent it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    words = [sys.executable, "-c", LINE, "run", str(folder / "p.yaml"), "--master", "local[2]"]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, cwd=folder)
    os.close(theirs)
    shown, asked = b"", False
    try:
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:  # raised here when the terminal's other side closes
                break
            if not read:
                break
            shown += read
            if not asked and b"2 batches" in shown:
                process.send_signal(signal.SIGINT)
                asked = True
        assert process.wait(60) == 0, shown[-2000:].decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    for word in ("running", "rows/s", "joined", "lag", "hit rate", "memory", "of 8MB", "Spark's log"):
        assert word in text
    assert "Traceback" not in text
    assert "WARN" not in text
    assert (folder / "checkpoint" / "spark.log").stat().st_size > 0
    assert Relation.open(folder / "keys").num_rows == 7
    assert not (folder / "spark-warehouse").exists()


def test_a_second_run_is_refused_before_spark_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semistream.spark.session.session_for", lambda *_, **__: pytest.fail("Spark starts"))
    before = entries(folder)
    with Ledger.open(folder / "checkpoint", "orders"):
        for command in (("run", "--once"), ("reconcile",)):
            said = refused(run(command[0], folder / "p.yaml", *command[1:]))
            assert re.search(
                rf"'orders' already runs in process {os.getpid()}, with the checkpoint .*Stop it first", said
            )
    assert entries(folder).keys() - before.keys() == {str(folder / "checkpoint" / name) for name in LEDGER}
