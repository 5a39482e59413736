"""``semistream explain``: the report as text and as JSON, the plot, samples of the stream, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from semistream import Relation, explain
from semistream.budget import format_bytes
from semistream.cli.explain import command
from semistream.costs.machine import Machine
from semistream.costs.profiles import save_profile
from semistream.datasets import Zipf
from semistream.relation import DiskCosts
from semistream.tuning.papers import PAPER_MACHINES
from tests.cli.conftest import Answer, run, write

PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide all profiles except those that a test saves."""
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def relation(tmp_path: Path) -> Path:
    """Products 0 to 9999."""
    rows = range(10_000)
    products = {"id": rows, "price": [i / 4 for i in rows], "stock": [i % 100 for i in rows]}
    Relation.build(pa.table(products), tmp_path / "products", key="id", page_bytes=2048)
    return tmp_path / "products"


@pytest.fixture
def orders() -> pa.Table:
    """Orders whose products follow Zipf's law."""
    drawn = next(Zipf(1.0, 10_000, seed=1).batches(20_000))
    return pa.table({"product": drawn.column("key"), "amount": drawn.column("seq")})


def refused(answer: Answer, code: int) -> str:
    """Return the text of a refusal on one line; check that stdout is empty."""
    assert (answer.code, answer.out) == (code, "")
    return " ".join(answer.err.replace("│", " ").split())


def test_text_has_the_choice_its_memory_and_the_alternatives(relation: Path) -> None:
    answer = run("explain", relation, "--rate", 5000, "--zipf", 1, "--memory", "200kB")
    assert (answer.code, answer.err) == (0, "")
    explanation = explain(relation, rate=5000.0, zipf=1.0, memory="200kB")
    lines = answer.out.splitlines()
    assert lines[0].strip() == str(relation)
    assert "5,000 tuples/s: sustained" in answer.out
    for name in explanation.parts:
        assert any(line.startswith(name) for line in lines)
    for other in (explanation.choice, *explanation.alternatives):
        assert any(line.startswith(other.operator) and "tuples/s" in line for line in lines)
    for change in explanation.changes:
        assert change in [line.strip() for line in lines]
    for word in ("median", "worst", "hit rate", "bound by"):
        assert word in answer.out
    assert f"create one with `semistream calibrate --on {relation}`" in " ".join(answer.out.split())


def test_operators_that_need_more_memory_say_how_much(relation: Path) -> None:
    answer = run("explain", relation, "--memory", "30kB")
    assert answer.code == 0
    least = explain(relation, memory="30kB").refused
    assert least
    for name, nbytes in least.items():
        assert any(line.startswith(name) and f"({nbytes:,} bytes)" in line for line in answer.out.splitlines())


def test_json_is_the_explanation(relation: Path) -> None:
    answer = run("explain", relation, "--rate", 1e12, "--zipf", 0.5, "--memory", "15%", "--json")
    assert (answer.code, answer.err) == (0, "")
    report = json.loads(answer.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert report == explain(relation, rate=1e12, zipf=0.5, memory="15%").as_dict()
    assert report["choice"]["worst_latency_s"] is None
    assert "out of reach here" in report["target"]


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_a_sample_of_the_stream_in_any_format(relation: Path, orders: pa.Table, tmp_path: Path, ending: str) -> None:
    sample = write(orders, tmp_path / f"orders{ending}")
    answer = run("explain", relation, "--sample", sample, "--on", "product=id", "--memory", "15%", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.json == explain(relation, sample=orders, on={"product": "id"}, memory="15%").as_dict()


def test_only_the_first_rows_of_a_long_sample_are_read(
    relation: Path, orders: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = write(orders, tmp_path / "orders.parquet")
    words = ("explain", relation, "--sample", sample, "--on", "product=id", "--memory", "15%", "--json")
    monkeypatch.setattr(command, "_MOST_ROWS", orders.num_rows)
    assert run(*words).err == ""
    monkeypatch.setattr(command, "_MOST_ROWS", 7_000)
    answer = run(*words)
    assert answer.code == 0
    assert "using its first 7,000 rows as the sample" in " ".join(answer.err.split())
    assert answer.json == explain(relation, sample=orders.slice(0, 7_000), on={"product": "id"}, memory="15%").as_dict()


def test_options_of_the_join_are_passed_on(relation: Path) -> None:
    words = ("--on", "product=id", "--columns", "price, stock", "--how", "left", "--batch-rows", 500, "--memory", "15%")
    options: dict[str, Any] = {"on": {"product": "id"}, "columns": ["price", "stock"], "how": "left"}
    expected = explain(relation, batch_rows=500.0, memory="15%", **options).as_dict()
    assert run("explain", relation, *words, "--json").json == expected
    assert expected != explain(relation, memory="15%").as_dict()


def test_a_profile_is_used_and_named(relation: Path) -> None:
    save_profile(Machine("a very slow disk", DiskCosts(0.5)), relation)
    answer = run("explain", relation, "--memory", "15%")
    assert answer.code == 0
    assert "a very slow disk" in answer.out
    assert "calibrate" not in answer.out


def test_a_machine_of_a_paper_is_taken_by_name(relation: Path) -> None:
    slow, here = (
        run("explain", relation, "--memory", "15%", "--json", *more).json for more in (("--machine", "mesh"), ())
    )
    assert slow == explain(relation, memory="15%", machine=PAPER_MACHINES["mesh"]).as_dict()
    assert "Pentium 4" in slow["machine"]
    assert slow["calibrated"]
    assert 0 < slow["choice"]["rate"] < here["choice"]["rate"] / 2
    assert "'mesh'" in refused(run("explain", relation, "--machine", "cray"), 1)


def test_a_profile_that_is_refused_is_an_error(relation: Path, cache: Path) -> None:
    save_profile(Machine("any", DiskCosts(0.5)), relation)
    (file,) = cache.glob("*.json")
    file.write_text("not JSON")
    message = refused(run("explain", relation, "--memory", "15%"), 1)
    assert "is damaged" in message
    assert "measure again with `semistream calibrate" in message


def test_the_plot(relation: Path, tmp_path: Path) -> None:
    words = ("explain", relation, "--zipf", 1, "--rate", 50_000, "--memory", "15%", "--plot", tmp_path / "rates.png")
    answer = run(*words)
    assert (answer.code, answer.err) == (0, "")
    assert (tmp_path / "rates.png").read_bytes().startswith(PNG)
    assert str(tmp_path / "rates.png") in answer.out
    assert "plot" not in run(*words, "--json").json


def test_what_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The plot has both curves against memory, the given memory, the target, and each operator above its region."""
    from matplotlib.figure import Figure

    from semistream.cli.explain.plot import save_plot

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: drawn.append(figure))
    rows = range(50_000)  # a quarter of what joining them can do without is enough for a cache
    relation = Relation.build(pa.table({"id": rows, "price": rows, "stock": rows}), tmp_path / "r", key="id")
    explanation = explain(relation, zipf=1.0, rate=50_000.0, memory="60%")
    save_plot(tmp_path / "rates.png", explanation, title="products")
    (rates, hits) = drawn[0].axes
    memories = [point.memory_bytes for point in explanation.curve]
    assert (rates.get_xscale(), rates.get_yscale(), hits.get_xscale()) == ("log", "log", "log")
    assert list(rates.lines[0].get_xdata()) == memories
    assert list(rates.lines[0].get_ydata()) == [point.rate for point in explanation.curve]
    assert list(hits.lines[0].get_ydata()) == [point.hit_rate for point in explanation.curve]
    assert [50_000.0, 50_000.0] in [list(line.get_ydata()) for line in rates.lines]
    for axes in (rates, hits):
        assert [explanation.memory_bytes] * 2 in [list(line.get_xdata()) for line in axes.lines]
    (answer,) = (line for line in rates.lines if line.get_marker() == "D")
    least = next(point.memory_bytes for point in explanation.curve if point.rate >= 50_000)
    assert answer.get_xdata()[0] <= least
    assert answer.get_ydata()[0] == 50_000
    names = {text.get_text() for text in rates.texts}
    answers = {"wanted: 50,000 tuples/s", f"from {format_bytes(round(answer.get_xdata()[0]))}"}
    assert names == {point.operator for point in explanation.curve} | answers
    assert "a cache with 25% of the memory" in {text.get_text() for text in hits.texts}
    assert all(axes.get_legend() is None for axes in (rates, hits))


@pytest.mark.parametrize(("plot", "message"), [("r.pdf", "ends in .png"), ("nowhere/r.png", "there is no folder")])
def test_a_plot_that_cannot_be_written_is_refused_at_once(relation: Path, plot: str, message: str) -> None:
    assert message in refused(run("explain", relation, "--plot", relation / plot), 2)


def test_a_plot_without_matplotlib_is_refused_and_the_text_is_not(
    relation: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("semistream.cli.plots.find_spec", lambda name: None)
    message = refused(run("explain", relation, "--plot", tmp_path / "rates.png"), 1)
    assert "pip install 'semistream[plot]'" in message
    assert run("explain", relation, "--memory", "15%").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "-5"], "rate is -5.0; give tuples per second"),
        (["--rate", "0"], "rate is 0.0"),
        (["--rate", "nan"], "rate is nan"),
        (["--zipf", "-1"], "zipf is -1.0"),
        (["--zipf", "nan"], "zipf is nan"),
        (["--batch-rows", "0"], "--batch-rows is 0.0"),
        (["--memory", "0"], "it must be more than zero"),
        (["--memory", "1kB"], "a budget of 1,000 bytes is too small for any operator"),
        (["--memory", "lots"], "memory is 'lots'"),
        (["--on", "products=idd"], "no column 'idd'"),
        (["--on", "price"], "equality with R's whole key (id)"),
        (["--columns", "prize"], "Did you mean 'price'?"),
        (["--sample", "nowhere.parquet"], "nowhere.parquet does not exist"),
    ],
)
def test_nonsense_is_refused(relation: Path, words: list[str], message: str) -> None:
    assert message in refused(run("explain", relation, *words), 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--zipf", "1", "--sample", "orders.parquet"], "--zipf and --sample both set the key frequencies"),
        (["--on", "a=1", "--on", "a=2"], "names the stream's column 'a' twice"),
        (["--on", "=id"], "give COLUMN, or S_COLUMN=R_COLUMN"),
        (["--how", "outer"], "outer"),
        (["--rate", "many"], "number"),
    ],
)
def test_a_wrong_command_line_is_told_as_such(relation: Path, words: list[str], message: str) -> None:
    assert message in refused(run("explain", relation, *words), 2)


def test_samples_that_say_nothing_are_refused(relation: Path, orders: pa.Table, tmp_path: Path) -> None:
    sample = write(orders.slice(0, 0), tmp_path / "none.parquet")
    message = refused(run("explain", relation, "--sample", sample, "--on", "product=id"), 1)
    assert f"the sample {sample} has no rows" in message
    (tmp_path / "nothing.csv").write_text("")
    assert "Empty CSV file" in refused(run("explain", relation, "--sample", tmp_path / "nothing.csv"), 1)
    sample = write(orders, tmp_path / "orders.parquet")
    message = refused(run("explain", relation, "--sample", sample), 1)
    assert "no column 'id'; it has 'product', 'amount'" in message
    message = refused(run("explain", relation, "--sample", sample, "--on", "produkt=id"), 1)
    assert "Did you mean 'product'?" in message


def test_other_paths_are_refused_with_the_command_that_builds_a_relation(tmp_path: Path, orders: pa.Table) -> None:
    plain = write(orders, tmp_path / "orders.parquet")
    message = refused(run("explain", plain), 1)
    assert "is plain Parquet" in message
    assert "Build one with `semistream relation build SOURCE PATH --key COLUMN`" in message
    assert "`semistream relation build" in refused(run("explain", tmp_path / "nowhere"), 1)


@pytest.mark.parametrize("option", ["--rate", "--zipf", "--batch-rows", "--memory"])
def test_numbers_at_the_edges_of_floats_are_refused_or_explained(relation, option):
    for value in ("1e-320", "1e308", "1e309", "nan", "inf", "-inf", "9" * 400, "-1", "0"):
        words = ["--rate", "10"] if option != "--rate" else []
        answer = run("explain", relation, *words, option, value)
        assert answer.code in (0, 1, 2)
        assert "Traceback" not in answer.err
