"""Experiments at a small scale: their findings hold, and their checks can fail."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from experiments.__main__ import EXPERIMENTS

from experiments import (
    cost_aware_shedding,
    mesh_fig11,
    window_fig7,
    window_fig9,
    window_fig10,
    window_fig12,
    window_fig13,
    window_fig15,
    window_fig17,
)

WINDOW_FIGURES = [window_fig7, window_fig9, window_fig10, window_fig12, window_fig13, window_fig15, window_fig17]


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment", [mesh_fig11, cost_aware_shedding, *WINDOW_FIGURES], ids=lambda experiment: experiment.__name__
)
def test_findings_hold_at_a_small_scale(experiment: ModuleType, tmp_path: Path) -> None:
    result = experiment.run(0.1 if experiment in WINDOW_FIGURES else 0.02)
    experiment.check(result)
    pytest.importorskip("matplotlib")
    experiment.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert experiment.__name__.removeprefix("experiments.") in EXPERIMENTS


def test_figure_11_has_a_point_for_each_ratio_skew_and_relation() -> None:
    result = mesh_fig11.run(0.001)
    points = {(row["R"], row["skew of R"], row["speed ratio"]) for row in result}
    assert len(points) == len(result) == 2 * 3 * 10
    for name, value in (("TOPW", 0.3), ("optimum", 0.0)):
        with pytest.raises(AssertionError):
            mesh_fig11.check([{**row, name: value} for row in result])


@pytest.mark.parametrize("experiment", [window_fig7, window_fig9, window_fig17], ids=lambda e: e.__name__)
def test_the_figures_of_window_joins_have_ours_beside_the_papers(experiment: ModuleType) -> None:
    result = experiment.run(0.1)
    shares = [row["memory / w"] for row in result]
    assert len(shares) == 5 * shares.count(0.1)
    for name in ("PROB", "EXPECTED", "LIFE", "RANDOM", "OPT"):
        with pytest.raises(AssertionError):
            experiment.check([{**row, name: 2 * row["EXACT"]} for row in result])
    with pytest.raises(AssertionError):
        experiment.check([{**row, "PROB": row["PROB"] // 2} for row in result])
