"""``semistream join`` with rows on standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.cli.conftest import read
from tests.oracle import batch_join, multiset


def piped(content: bytes, *words: object) -> subprocess.CompletedProcess[bytes]:
    """Run ``python -m semistream`` with bytes on standard input."""
    line = [sys.executable, "-m", "semistream", *map(str, words)]
    return subprocess.run(line, input=content, capture_output=True, check=False)


def in_format(table: pa.Table, format: str) -> bytes:
    sink = pa.BufferOutputStream()
    if format == "arrow":
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    elif format == "csv":
        pa.csv.write_csv(table, sink)
    else:
        pa.parquet.write_table(table, sink)
    return bytes(sink.getvalue())


def from_format(content: bytes, format: str) -> pa.Table:
    source = pa.BufferReader(content)
    if format == "arrow":
        return pa.ipc.open_stream(source).read_all()
    return pa.csv.read_csv(source) if format == "csv" else pa.parquet.read_table(source)


@pytest.mark.parametrize("format", ["arrow", "csv", "parquet"])
def test_rows_come_from_stdin_and_go_to_stdout(
    orders: pa.Table, products: pa.Table, relation: Path, format: str
) -> None:
    words = ("join", "-", relation, "--on", "product=id", "--columns", "name", "--out", "-", "--json")
    done = piped(in_format(orders, format), *words, *(() if format == "arrow" else ("--format", format)))
    assert done.returncode == 0, done.stderr
    expected = batch_join(orders, products, {"product": "id"}, "inner", ["name"])
    assert multiset(from_format(done.stdout, format)) == multiset(expected)
    report = json.loads(done.stderr)  # the report does not mix with the rows
    assert (report["stream"], report["out"], report["out_bytes"]) == ("-", "-", len(done.stdout))


def test_one_side_can_be_a_file(orders: pa.Table, stream: Path, relation: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    words = ("--on", "product=id", "--how", "semi")
    assert piped(in_format(orders, "csv"), "join", "-", relation, *words, "--out", out, "--format", "csv").stdout
    done = piped(b"", "join", stream, relation, *words, "--out", "-", "--format", "csv")
    assert multiset(from_format(done.stdout, "csv")) == multiset(read(out))
    assert b"standard output" in done.stderr


def test_rows_in_another_format_are_refused_with_the_option(orders: pa.Table, relation: Path) -> None:
    words = ("join", "-", relation, "--on", "product=id", "--out", "-")
    for content in (in_format(orders, "csv"), b""):
        done = piped(content, *words)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"standard input is not an Arrow IPC stream" in done.stderr
        assert b"by --format: arrow, csv, parquet" in done.stderr
        assert b"Traceback" not in done.stderr
