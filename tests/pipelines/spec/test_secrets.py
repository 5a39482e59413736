"""Values from the environment are never shown: not in errors, nor in what commands print, nor in metrics."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from semistream import errors
from semistream.errors import ColumnNotFound, InvalidArgument, SemistreamError, StorageError, hidden_in, hide
from semistream.pipelines.batch.batch_report import BatchReport, BatchReporter
from semistream.pipelines.ledger.entries import BatchManifest, Plan, TaskResult
from semistream.pipelines.spec.yaml_file import read_spec
from semistream.pipelines.status import METRICS, pipeline_state
from semistream.relation import Relation
from tests.cli.conftest import run

SECRETS = {
    "plain": "Tr0ub4dor-and-3",
    "quotes": "Tr0ub4dor'and\"3\\n",
    "path": "/Tr0ub4dor//and/3/",
    "lines": "Tr0ub4dor and\nanother\tlïne 3",
    "url": "user:Tr0ub4dor@host:9092/?and=3",
    "long": "Tr0ub4dor" * 300,
}
CASES = list(zip(SECRETS.values(), 2 * ["{}", "x{}y", "{} "], strict=True))
PARTS = ("Tr0ub4dor", "4dor")

FULL: dict[str, Any] = {
    "name": "orders",
    "source": {
        "format": "kafka", "servers": "localhost:1", "topic": "orders", "value": "json", "starting": "earliest",
        "schema": {"id": "bigint", "day": "date", "customer": "string"},
        "rules": [{"column": "customer", "one_of": ["a", "b"]}, {"column": "day", "min": "2024-01-01"}],
        "options": {"kafka.sasl.jaas.config": "x"},
    },
    "steps": [
        {"surrogate_key": {"relation": "keys", "key": "customer", "into": "customer_key", "source": "web"}},
        {
            "join": {
                "relation": "products", "on": {"id": "id"}, "where": "s.day != r.since", "columns": {"name": "product"},
                "suffix": "_p", "operator": "auto", "unmatched": "retry", "retry_for": "1 day", "how": "inner",
                "options": {"sorted": "x"}, "disk": "auto",
                "updates": {"format": "json", "path": "updates", "op": "op", "delete": "D", "options": {"mode": "x"}},
            }
        },
    ],
    "sink": {"format": "parquet", "path": "tables/sink", "partition_by": ["day"]},
    "unmatched": {"format": "kafka", "servers": "localhost:1", "topic": "t", "options": {"kafka.key": "x"}},
    "quarantine": {"format": "parquet", "path": "tables/quarantine"},
    "checkpoint": "checkpoint", "memory": "64MB", "every": "1s", "route": "none",
    "overload": {
        "latency": "30s", "loss": "max_subset", "relation": "products",
        "archive": {"path": "shed", "format": "parquet"},
    },
}  # fmt: skip


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All texts of a specification."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from places(value, (*at, name))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from places(value, (*at, number))
    elif isinstance(content, str):
        yield at


def with_variable(place: tuple[Any, ...], text: str) -> dict[str, Any]:
    content = copy.deepcopy(FULL)
    at = content
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = text
    return content


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch):
    monkeypatch.setattr(errors, "_HIDDEN", {})


def require_clean(*shown: object) -> None:
    for each in shown:
        for part in PARTS:
            assert part not in str(each)


@pytest.mark.slow
@pytest.mark.parametrize(("secret", "around"), CASES, ids=SECRETS)
def test_no_error_and_no_repr_of_a_specification_shows_a_secret(tmp_path, secret, around):
    refused = 0
    for place in places(FULL):
        file = tmp_path / "pipeline.yaml"
        file.write_text(yaml.safe_dump(with_variable(place, around.format("${SECRET}"))))
        try:
            spec = read_spec(file, {"SECRET": secret})
        except SemistreamError as error:
            refused += 1
            require_clean(error, repr(error))
        else:
            require_clean(spec, repr(spec), spec.sink, repr(spec.source), spec.tables)
    assert refused > 20


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Relation.build(
        pa.table({"id": [1, 2], "name": ["a", "b"], "since": pa.array([1, 2], pa.date32())}), "products", key="id"
    )
    (tmp_path / "updates").mkdir()
    (tmp_path / "incoming").mkdir()
    return tmp_path


@pytest.mark.slow
def test_no_command_shows_a_secret_wherever_it_stands(folder, monkeypatch):
    pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run this")
    monkeypatch.setenv("SECRET", SECRETS["plain"])
    files = {"format": "json", "path": "incoming", "schema": FULL["source"]["schema"], "options": {"mode": "x"}}
    codes = set()
    for source in (FULL["source"], files):
        base = {**FULL, "source": source, "unmatched": {"format": "parquet", "path": "tables/unmatched"}}
        for place in places(base):
            content = copy.deepcopy(base)
            at: Any = content
            for part in place[:-1]:
                at = at[part]
            at[place[-1]] = f"{at[place[-1]]}${{SECRET}}" if len(place) % 2 else "${SECRET}"
            (folder / "pipeline.yaml").write_text(yaml.safe_dump(content))
            for command in ("validate", "status") if source is files else ("explain",):
                answer = run(command, "pipeline.yaml", *(["--json"] if len(place) % 3 else []))
                codes.add((command, answer.code))
                require_clean(answer.out, answer.err)
    assert ("validate", 1) in codes


def test_reports_keep_the_rest_of_what_they_say(folder, monkeypatch):
    pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run this")
    monkeypatch.setenv("LAKE", str(folder / "Tr0ub4dor"))
    content = {
        **FULL, "source": {"format": "json", "path": "incoming", "schema": {"id": "bigint"}},
        "steps": [{"join": {"relation": "products", "on": "id"}}],
        "sink": {"format": "parquet", "path": "${LAKE}/sink"},
        "unmatched": {"format": "parquet", "path": "tables/unmatched"},
    }  # fmt: skip
    del content["overload"]
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content))
    answer = run("validate", "pipeline.yaml")
    assert answer.code == 0, answer.err
    require_clean(answer.out)
    require_clean(json.dumps(run("validate", "pipeline.yaml", "--json").json))


def test_metrics_and_remarks_have_no_secret(tmp_path):
    hide(SECRETS["plain"], "${SECRET}")
    manifest = BatchManifest(0, TaskResult(2, {"joined": 2}), [])
    reports: list[BatchReport] = []
    reporter = BatchReporter("orders", tmp_path, reports.append, lambda: 1.0)
    reporter.report(
        Plan(0, 0, {"products": 1}, 1.0), manifest, seconds=1.0, replayed=False,
        remarks=[f"the files {SECRETS['plain']}/a.json lack a column"], trigger=None, overload=None, parts_s={},
    )  # fmt: skip
    require_clean((tmp_path / METRICS).read_text())
    assert "the files ${SECRET}/a.json lack a column" in (tmp_path / METRICS).read_text()
    assert len(reports) == 1


def test_every_error_of_ours_hides_it_also_with_arguments_of_its_own():
    hide(SECRETS["quotes"], "${SECRET}")
    secret = SECRETS["quotes"]
    for error in (
        InvalidArgument(f"on is {secret!r}"),
        ColumnNotFound(secret, [secret + "x"], where="R"),
        StorageError(2, f"{secret} cannot be read"),
        StorageError(f"{secret} cannot be read"),
    ):
        assert "${SECRET}" in str(error)
        require_clean(error, repr(error))
    assert hidden_in({"a": [secret, 5], secret: (1.5, None)}) == {"a": ["${SECRET}", 5], "${SECRET}": [1.5, None]}


def test_short_values_and_numbers_hide_nothing_else(tmp_path):
    for value in ("8", "json", "true", "10000000", "3.14159", ""):
        hide(value, "${VALUE}")
    assert errors.hidden("8 json files, 10000000 rows, 3.14159") == "8 json files, 10000000 rows, 3.14159"
    content = {**FULL, "every": "${EVERY}", "memory": "${MEMORY}"}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(SemistreamError) as refused:
        read_spec(tmp_path / "p.yaml", {"EVERY": "abc", "MEMORY": "5q"})
    assert "'${EVERY}' is not a duration" in str(refused.value)
    assert "memory is '${MEMORY}'" in str(refused.value)


def test_a_missing_checkpoint_is_named_by_its_variable(tmp_path):
    hide(str(tmp_path), "${LAKE}")
    with pytest.raises(SemistreamError, match=r"^\$\{LAKE\}/none is not a checkpoint yet"):
        pipeline_state(tmp_path / "none", "p")
