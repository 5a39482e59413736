"""docs/windows.md: its examples run, and its commands print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from semistream.windows import POLICIES
from tests.cli.conftest import run

TEXT = Path(__file__).parents[2].joinpath("docs", "windows.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CONSOLES = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.slow
def test_the_examples_run_and_the_commands_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for snippet in SNIPPETS:
        if "SparkSession" not in snippet:
            exec(snippet, names)
    best, exact_memory, repaired = capsys.readouterr().out.splitlines()
    assert best == "80884 True"
    assert exact_memory == "798"
    kept, missing, whole = repaired.split()
    assert (int(kept) + int(missing), whole) == (101_088, "True")
    assert [row for batch in names["results"] for row in batch["user"].to_pylist()] == ["ann"]  # type: ignore[attr-defined]
    commands = 0
    for line in "".join(CONSOLES).splitlines():
        if line.startswith("$ semistream "):
            answer = run(*shlex.split(line)[2:])
            assert answer.code == 0, line
            commands += 1
            printed = {text.rstrip() for text in answer.out.splitlines()}
        elif line.strip(".").strip():
            assert line in printed
    assert commands == 4
    assert Path("kept.png").exists()
    assert Path("joined.parquet").exists()


@pytest.mark.spark
def test_the_example_on_spark_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    before = spark.conf.get(PROVIDER)
    try:
        for snippet in [SNIPPETS[0], "left, right = (pq.read_table(f'{n}.parquet') for n in ('left', 'right'))"]:
            exec(snippet, names)
        example = next(snippet for snippet in SNIPPETS if "SparkSession" in snippet)
        for path in ('f"streams/', '"joined"', '"checkpoint"'):  # the JVM of the tests was started in another folder
            example = example.replace(path, path.replace('"', f'"{tmp_path}/', 1))
        exec(example, names)
    finally:
        spark.conf.set(PROVIDER, before)
    results, evicted, estimate, missing = map(int, capsys.readouterr().out.split())
    assert results == spark.read.parquet(str(tmp_path / "joined")).count()
    assert 0.8 * 101_088 < results < 101_088, "rows of the last seconds wait for the watermark"
    assert evicted > 1000
    assert 0 < missing < 101_088 - results
    assert 0.5 * missing < estimate < 2 * missing


def test_every_policy_is_described() -> None:
    described = set(re.findall(r"^\| `(\w+)` \| .* \| .* \|$", TEXT, re.MULTILINE))
    assert {name.title() for name in POLICIES} <= described


def test_the_experiments_that_it_names_are_there() -> None:
    from experiments.__main__ import EXPERIMENTS

    named = set(re.findall(r"`(window_fig\d+)`", TEXT)) | set(re.findall(r"experiments (window_fig\d+)", TEXT))
    assert named == {name for name in EXPERIMENTS if name.startswith("window_")}
