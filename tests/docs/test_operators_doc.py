"""docs/operators.md: its examples run, its tables are true, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream import ParquetRelation, Relation
from semistream.errors import SemistreamError
from semistream.tuning.candidates import OPERATORS

ROOT = Path(__file__).parents[2]
TEXT = ROOT.joinpath("docs", "operators.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
CONDITIONS = re.findall(r'^\| `"(\w+)"` \| (yes|no) \| (yes|no) \| (yes|no) \| (yes|no) \|$', TEXT, re.MULTILINE)
NAMED_TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for snippet in SNIPPETS:
        exec(snippet, names)
    printed = capsys.readouterr().out
    assert "engine join" in printed
    read, in_time, versions = printed.splitlines()[-3:]
    assert read == "3 2", "rows, and the pages of two keys that lie far apart"
    assert in_time.startswith("3 ")
    assert versions == "[3.5, 99.0] {1: 1, 2: 1}"


def test_every_operator_is_described_and_no_other() -> None:
    assert set(re.findall(r'^\| `"(\w+)"` \| `(\w+)` \|', TEXT, re.MULTILINE)) == {
        (name, kind.__name__) for name, kind in OPERATORS.items()
    }
    assert {name for name, *_ in CONDITIONS} == set(OPERATORS)


@pytest.mark.parametrize(("name", "equality", "range_", "other", "parquet"), CONDITIONS)
def test_the_table_of_conditions(
    tmp_path: Path, name: str, equality: str, range_: str, other: str, parquet: str
) -> None:
    table = pa.table({"k": [1, 2, 3], "v": [10, 20, 30]})
    built = Relation.build(table, tmp_path / "r", key="k")
    pq.write_table(table, tmp_path / "r.parquet")
    plain = ParquetRelation.open(tmp_path / "r.parquet")
    stream = pa.schema([("s", pa.int64())])

    def takes(relation: Relation | ParquetRelation, **condition: object) -> str:
        try:
            OPERATORS[name](relation, stream, memory="64MB", **condition).close()  # type: ignore[arg-type]
        except SemistreamError:
            return "no"
        return "yes"

    assert takes(built, on={"s": "k"}) == equality
    assert takes(built, where="s.s BETWEEN r.k AND r.k") == takes(built, where="s.s <= r.k") == range_
    assert takes(built, where="s.s < r.v") == takes(built, on={"s": "v"}) == other
    assert takes(plain, on={"s": "k"}) == parquet


@pytest.mark.parametrize(("file", "test"), NAMED_TESTS)
def test_the_tests_that_are_named_exist(file: str, test: str) -> None:
    assert f"\ndef {test}(" in ROOT.joinpath(file).read_text()


def test_the_benchmarks_that_are_named_exist() -> None:
    known = re.findall(
        r'^    "(\w+)": "benchmarks\.', ROOT.joinpath("benchmarks", "__main__.py").read_text(), re.MULTILINE
    )
    assert set(re.findall(r"python -m benchmarks (\w+)", TEXT)) <= set(known)
