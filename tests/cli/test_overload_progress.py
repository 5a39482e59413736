"""The progress display of a running pipeline with a latency goal."""

from __future__ import annotations

import pytest
from rich.console import Console

from semistream.cli.pipeline.batch_progress import PipelineProgress
from semistream.cli.pipeline.pipeline_reports import PipelineRun
from semistream.pipelines.overload.loss_report import Latencies, Missing, OverloadReport

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from semistream.pipelines.batch.batch_report import BatchReport


def shown(overload: OverloadReport | None, shed: int = 0) -> str:
    """The table after one batch of 1000 rows."""
    outcomes = {"joined": 1000 - shed, "shed": shed}
    report = BatchReport(
        "orders", 0, 0, 100.0, 1000, outcomes, 2.0, False, 0, 0.0, 0.5, 1 << 20, 0, {}, overload=overload
    )
    progress = PipelineProgress("orders", "8MB", PipelineRun("orders", "p.yaml"))
    progress.batch_done(report)
    console = Console(width=120, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(progress._draw())
    return " ".join(captured.get().split())


def test_shed_rows_missing_results_and_latency_against_the_goal_are_shown() -> None:
    missing = Missing(rows=2500, since=40.0, results_low=3000, results_high=7000)
    text = shown(OverloadReport(30.0, Latencies(12.0, 24.5, 28.0), 250, 0.25, missing, at=100.0), shed=250)
    assert "latency p50 12.0, p95 24.5, p99 28.0 s; goal 30 s" in text
    assert "shed 250 rows of the last batch, 25.0%" in text
    assert "to repair 2,500 rows, the oldest for 60 s; 3,000 to 7,000 results missing" in text


@pytest.mark.parametrize(("low", "high", "said"), [(7, 7, "7 results"), (3, None, "3 or more results")])
def test_results_are_exact_where_they_are_known(low: int, high: int | None, said: str) -> None:
    missing = Missing(rows=5, since=90.0, results_low=low, results_high=high)
    assert said in shown(OverloadReport(30.0, None, 5, 0.005, missing, at=100.0), shed=5)


def test_nothing_is_shown_without_missing_rows_or_without_a_goal() -> None:
    calm = shown(OverloadReport(30.0, Latencies(1.0, 2.0, 3.0), 0, 0.0, Missing(), at=100.0))
    assert "to repair" not in calm
    assert "latency p50 1.0" in calm
    assert "latency" not in shown(None)
