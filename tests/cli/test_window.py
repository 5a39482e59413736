"""``semistream window``: results are the operator's, beside the optimum and DuckDB's exact size."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from semistream.cli.window.command import AllocationName, PolicyName
from semistream.datasets import ZipfPair
from semistream.windows import POLICIES, WindowJoin, optimal_offline
from semistream.windows.join.capacity import Allocation
from tests.cli.conftest import read, run, write
from tests.oracle import multiset

ROWS, WINDOW = 600, 40


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    """Two streams of 600 rows, with ascending times that repeat and leave out some."""
    left, right = ZipfPair(1.0, 20, seed=4).keys(ROWS)
    rng = np.random.default_rng(4)
    times = [np.sort(rng.integers(0, 500, ROWS)) for _ in range(2)]
    return (
        pa.table({"k": left, "at": times[0], "l": np.arange(ROWS)}),
        pa.table({"key": right, "at": times[1], "r": np.arange(ROWS)}),
    )


@pytest.fixture
def files(tables: tuple[pa.Table, pa.Table], tmp_path: Path) -> dict[str, Path]:
    names = "left", "right"
    return {name: write(table, tmp_path / f"{name}.parquet") for name, table in zip(names, tables, strict=True)}


def words(files: dict[str, Path], **changed: object) -> list[object]:
    options = {**files, "on": "k=key", "window": WINDOW, "memory": 30, **changed}
    return ["window", *(word for name, value in options.items() if value is not None for word in (f"--{name}", value))]


def exact_results(tables: tuple[pa.Table, pa.Table], condition: str) -> pa.Table:
    """Return DuckDB's join, with positions as ``l.l`` and ``r.r``."""
    with duckdb.connect() as connection:
        connection.register("l", tables[0])
        connection.register("r", tables[1])
        query = f"SELECT l.k, l.at, l.l, r.at AS at_right, r.r FROM l JOIN r ON l.k = r.key AND {condition}"
        return connection.sql(query).to_arrow_table()


def operator_results(tables: tuple[pa.Table, pa.Table], **options: Any) -> pa.Table:
    join = WindowJoin(tables[0].schema, tables[1].schema, on={"k": "key"}, **options)
    found = []
    for side, table in zip(("left", "right"), tables, strict=True):
        for batch in table.to_batches():
            found += join.push(side, batch)
    found += join.finish()
    return pa.Table.from_batches(found, join.schema)


def test_choices_are_those_of_the_library() -> None:
    assert {policy.value for policy in PolicyName} == set(POLICIES)
    assert [each.value for each in AllocationName] == list(get_args(Allocation))


@pytest.mark.parametrize("policy", list(PolicyName))
@pytest.mark.parametrize("allocation", list(AllocationName))
def test_results_are_the_operators(
    tables: tuple[pa.Table, pa.Table],
    files: dict[str, Path],
    tmp_path: Path,
    policy: PolicyName,
    allocation: AllocationName,
) -> None:
    out = tmp_path / "out.parquet"
    choice = {"policy": policy.value, "allocation": allocation.value}
    answer = run(*words(files, **choice, out=out), "--optimal", "--json")
    assert answer.code == 0
    expected = operator_results(tables, window=WINDOW, memory=30, **choice)
    assert multiset(read(out)) == multiset(expected)
    report = answer.json
    best = optimal_offline(tables[0]["k"], tables[1]["key"], window=WINDOW, memory=30, allocation=allocation.value)
    assert report["results"] == expected.num_rows < report["optimum"] == best.results < report["exact"]
    assert report["exact"] == exact_results(tables, f"abs(l.l - r.r) < {WINDOW}").num_rows
    assert report["exact_memory"] == 2 * WINDOW - 2
    assert report["out_bytes"] == out.stat().st_size
    for side in ("left", "right"):
        counts = report["stats"][side]
        assert counts["evicted"] > 0
        assert counts["rows_in"] == ROWS == counts["evicted"] + counts["expired"] + counts["in_memory"]


def latest_rows(left: int, right: int) -> str:
    """Both are among the latest rows of their streams when the later one arrives."""
    arrived = "(SELECT count(*) FROM {0} x WHERE x.at <= greatest(l.at, r.at)) - {0}.{0} <= {1}"
    return f"{arrived.format('l', left)} AND {arrived.format('r', right)}"


WINDOWS = {
    "15": "abs(l.at - r.at) < 15",
    "unbounded": "TRUE",
    "25 rows": latest_rows(25, 25),
    "30,7": "l.at - r.at < 7 AND r.at - l.at < 30",
    "12, Unbounded": "r.at - l.at < 12",
    "10 rows,60 rows": latest_rows(10, 60),
    "unbounded,40 rows": latest_rows(ROWS, 40),
}
"""DuckDB's names of them."""


@pytest.mark.parametrize("window", WINDOWS)
def test_exact_in_the_memory_that_it_says_is_exact(
    tables: tuple[pa.Table, pa.Table], files: dict[str, Path], tmp_path: Path, window: str
) -> None:
    asked = run(*words(files, window=window, time="at", policy="random"), "--json").json
    assert asked["results"] < asked["exact"]
    enough, out = asked["exact_memory"], tmp_path / "out.arrow"
    answer = run(
        *words(files, window=window, time="at", policy="random", memory=enough, out=out), "--optimal", "--json"
    )
    report, expected = answer.json, exact_results(tables, WINDOWS[window])
    assert report["results"] == report["optimum"] == report["exact"] == expected.num_rows
    assert multiset(read(out)) == multiset(expected)
    assert report["stats"]["left"]["evicted"] == report["stats"]["right"]["evicted"] == 0
    if "unbounded" not in window.lower():
        less = run(*words(files, window=window, time="at", policy="random", memory=enough - 1), "--json").json
        assert less["stats"]["left"]["evicted"] + less["stats"]["right"]["evicted"] > 0


@pytest.mark.parametrize("source", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("target", ["parquet", "arrow", "csv"])
def test_every_format_goes_in_and_comes_out(
    tables: tuple[pa.Table, pa.Table], tmp_path: Path, source: str, target: str
) -> None:
    left, right = (write(table, tmp_path / f"{i}.{source}") for i, table in enumerate(tables))
    out = tmp_path / f"out.{target}"
    assert run(*words({"left": left, "right": right}, memory=1000, out=out)).code == 0
    assert multiset(read(out)) == multiset(exact_results(tables, f"abs(l.l - r.r) < {WINDOW}"))


def test_rows_out_of_order_arrive_at_their_times(
    tables: tuple[pa.Table, pa.Table], files: dict[str, Path], tmp_path: Path
) -> None:
    in_order = run(*words(files, time="at", window=15), "--optimal", "--json").json
    assert in_order["notes"] == []
    order = np.argsort(tables[0]["at"].to_numpy() // 100 % 2, kind="stable")  # stretches of time change places
    mixed = write(tables[0].take(pa.array(order)), tmp_path / "mixed.parquet")
    report = run(*words({**files, "left": mixed}, time="at", window=15), "--optimal", "--json").json
    assert "mixed.parquet has rows out of time order" in report["notes"][0]
    for name in ("results", "optimum", "exact"):
        assert report[name] == in_order[name]


def test_times_may_be_timestamps_and_keys_of_other_widths(tables: tuple[pa.Table, pa.Table], tmp_path: Path) -> None:
    """A window in minutes equals one in milliseconds, the finer unit of the two columns."""
    whole = [table.set_column(1, "at", pa.array(table["at"].to_numpy() * 60_000)) for table in tables]
    numbers = {"left": write(whole[0], tmp_path / "l.parquet"), "right": write(whole[1], tmp_path / "r.parquet")}
    plain = run(*words(numbers, time="at", window=15 * 60_000), "--optimal", "--json").json
    start = datetime(2026, 1, 1)
    stamps = [
        pa.array([start + timedelta(minutes=m) for m in table["at"].to_pylist()], pa.timestamp(unit))
        for table, unit in zip(tables, ("s", "ms"), strict=True)
    ]
    left = tables[0].set_column(1, "seen", stamps[0]).set_column(0, "k", tables[0]["k"].cast(pa.int16()))
    right = tables[1].set_column(1, "sent", stamps[1])
    paths = {"left": write(left, tmp_path / "a.parquet"), "right": write(right, tmp_path / "b.parquet")}
    report = run(*words(paths, time="seen=sent", window="15 minutes"), "--optimal", "--json").json
    for name in ("results", "optimum", "exact"):
        assert report[name] == plain[name]


def test_several_keys_and_nulls(tmp_path: Path) -> None:
    left = pa.table({"a": [1, 1, None, 2], "b": ["x", "y", "x", None], "n": [0, 1, 2, 3]})
    right = pa.table({"a": [1, 1, None, 2], "b": pa.array(["x", "y", "x", None], pa.large_string()), "m": [0, 1, 2, 3]})
    paths = {"left": write(left, tmp_path / "l.parquet"), "right": write(right, tmp_path / "r.parquet")}
    answer = run(*words(paths, on="a", memory=20), "--on", "b", "--optimal", "--json")
    report = answer.json
    assert report["results"] == report["optimum"] == report["exact"] == 2
    assert report["stats"]["left"]["null_keys"] == report["stats"]["right"]["null_keys"] == 2


def test_probabilities_of_the_whole_streams_need_no_sketch(files: dict[str, Path]) -> None:
    assert run(*words(files, memory=4)).code == 1
    answer = run(*words(files, memory=4, probabilities="streams"), "--json")
    assert answer.json["results"] > 0
    learnt, known = (run(*words(files, probabilities=each), "--json").json["results"] for each in ("learnt", "streams"))
    assert learnt != known


def test_the_plot_has_all_policies_in_several_memories(files: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.png"
    report = run(*words(files, plot=plot), "--optimal", "--json").json
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert report["plot"] == str(plot)
    memories = [point["memory"] for point in report["curve"]]
    assert memories == sorted(set(memories))
    assert len(memories) >= 5
    assert 30 in memories
    assert memories[-1] == report["exact_memory"]
    for point in report["curve"]:
        assert set(point["results"]) == set(POLICIES)
        assert max(point["results"].values()) <= point["optimum"] <= report["exact"]
    at_hand = next(point for point in report["curve"] if point["memory"] == 30)
    assert at_hand["results"]["prob"] == report["results"]
    assert at_hand["optimum"] == report["optimum"]
    text = run(*words(files, plot=plot, window="unbounded"))
    assert text.code == 0, "LIFE is left out where no life has an end"
    assert "EXPECTED" in text.out
    assert "LIFE" not in text.out


def test_text_shows_the_results_kept_and_possible(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    text = run(*words(files, out=out), "--optimal").out
    report = run(*words(files), "--optimal", "--json").json
    share = f"{100 * report['results'] / report['optimum']:.1f} % of the optimum"
    for part in (
        f"{report['results']:,}", share, f"{report['optimum']:,}", f"{report['exact']:,}", "evicted", "tuples/s",
        "38.5 % of the 78 needed to be exact", str(out),
    ):  # fmt: skip
        assert part in text
    assert "optimum" not in run(*words(files)).out


def test_memory_may_be_in_bytes(files: dict[str, Path]) -> None:
    report = run(*words(files, memory="200kB"), "--json").json
    assert report["memory"] == "200kB"
    assert 0 < report["results"] <= report["exact"]
    refused = run(*words(files, memory="200kB"), "--optimal")
    assert refused.code == 1
    assert "give --memory as a number" in refused.err


def test_streams_without_rows_have_no_results(tables: tuple[pa.Table, pa.Table], tmp_path: Path) -> None:
    left, right = (write(table.slice(0, 0), tmp_path / f"{i}.parquet") for i, table in enumerate(tables))
    report = run(*words({"left": left, "right": right}), "--optimal", "--json").json
    assert report["results"] == report["optimum"] == report["exact"] == report["exact_memory"] == 0
    assert math.isfinite(report["tuples_per_s"])
    assert run(*words({"left": left, "right": right}), "--optimal").code == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"window": "0"}, "window is 0; give a whole number of instants"),
        ({"window": "0 rows"}, "a window of tuples is 0"),
        ({"window": "5 minutes"}, "give a whole number of instants"),
        ({"window": "5,0"}, "the right window is 0"),
        ({"window": "25 rows,40"}, "Give both in rows or both in time"),
        ({"memory": "0"}, "memory is 0; give at least 2 tuples"),
        ({"memory": "lots"}, "memory is 'lots'"),
        ({"memory": "1kB"}, "too small for a window join"),
        ({"on": "kk=key"}, "Did you mean 'k'?"),
        ({"on": "k=keys"}, "the right stream has no column 'keys'"),
        ({"time": "when"}, "has no column 'when'"),
        ({"left": "none.parquet"}, "none.parquet does not exist"),
        ({"left": "text.parquet"}, "key 'k' of the left stream is string but key 'key' of the right stream is int64"),
        ({"left": "timeless.parquet", "time": "at"}, "is null in 1 of 2 rows"),
        ({"policy": "life", "window": "unbounded"}, "give a bounded window, or the policy 'prob'"),
        ({"out": "out.txt"}, "must end in one of .parquet, .arrow, .csv"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(pa.table({"k": ["a"], "at": [1], "l": [0]}), Path("text.parquet"))
    write(pa.table({"k": [1, 1], "at": [1, None], "l": [0, 1]}), Path("timeless.parquet"))
    before = sorted(tmp_path.iterdir())
    answer = run(*words(files, **{"out": "out.parquet", **changed}), "--json")
    assert answer.code == 1
    assert message in answer.err
    assert answer.err.startswith("semistream: ")
    assert answer.out == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"on": "k="}, "LEFT_COLUMN=RIGHT_COLUMN"),
        ({"time": "=at"}, "LEFT_COLUMN=RIGHT_COLUMN"),
        ({"window": "400,"}, "LEFT_LENGTH,RIGHT_LENGTH"),
        ({"window": "1,2,3"}, "LEFT_LENGTH,RIGHT_LENGTH"),
        ({"policy": "best"}, "best"),
    ],
)
def test_a_malformed_option_is_a_usage_error(files: dict[str, Path], changed: dict[str, str], message: str) -> None:
    answer = run(*words(files, **changed))
    assert answer.code == 2
    assert message in answer.err


def test_a_missing_solver_or_plotter_is_said_before_any_work(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def without(package: str) -> Callable[..., Any]:
        return lambda name, *more: None if name == package else find(name, *more)

    out = tmp_path / "out.parquet"
    monkeypatch.setattr("semistream.cli.options.find_spec", without("ortools"))
    answer = run(*words(files, out=out), "--optimal")
    assert answer.code == 1
    assert "pip install 'semistream[windows]'" in answer.err
    monkeypatch.setattr("semistream.cli.plots.find_spec", without("matplotlib"))
    answer = run(*words(files, out=out, plot=tmp_path / "p.png"))
    assert answer.code == 1
    assert "pip install 'semistream[plot]'" in answer.err
    assert not out.exists()
