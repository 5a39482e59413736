"""``semistream calibrate``: the report as text and as JSON, the profile, the plot, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from semistream.costs.identity import MachineIdentity
from semistream.costs.machine import DEFAULT_MACHINE, Machine, OperatorCosts
from semistream.costs.profiles import MachineProfile, load_profile
from semistream.relation.read import disk as disks
from semistream.relation.read.disk_costs import DiskCosts
from semistream.tuning.calibration import calibrate as module
from semistream.tuning.calibration.disk_probe import SIZES, DiskProbe, DiskProber, RequestTime
from semistream.tuning.calibration.progress import Progress
from tests.cli.conftest import run

PNG = b"\x89PNG"


class MeasuredOperators:
    def costs(self, disk: DiskCosts) -> dict[str, OperatorCosts]:  # noqa: ARG002
        return {"mesh": OperatorCosts(tuple_s=1e-7, row_s=2.34e-8, step_s=4.5e-5, packet_s=6.2e-3)}


def run_operators(folder: Path, progress: Progress, halfway: Callable[[], None]) -> MeasuredOperators:
    halfway()
    return MeasuredOperators()


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Measures little, and keeps the profile where the test can see it."""
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "cache"))
    measure = partial(
        module.calibrate,
        measure_disk=partial(DiskProber, file_bytes=1 << 20, sizes=(8192, 65536, 1 << 20), limit_s=0.02),
        measure_operators=run_operators,
    )
    monkeypatch.setattr(module, "calibrate", measure)
    return tmp_path / "cache"


def test_the_report_names_costs_profile_and_plot(tmp_path: Path, small: Path) -> None:
    answer = run("calibrate", "--on", tmp_path)
    assert (answer.code, answer.err) == (0, "")
    for word in ("seek", "transfer", "8,192", "65,536", "1,048,576", "operator", "time per unit", "row 23.4 ns"):
        assert word in answer.out
    (profile,), (plot,) = small.glob("*.json"), small.glob("*.png")
    assert str(profile) in answer.out
    assert str(plot) in answer.out
    assert plot.read_bytes().startswith(PNG)
    assert plot.stem == profile.stem
    assert load_profile(tmp_path) is not None


def test_json_has_all_measurements(tmp_path: Path, small: Path) -> None:
    answer = run("calibrate", "--on", tmp_path, "--json", "--plot", tmp_path / "costs.png")
    assert (answer.code, answer.err) == (0, "")
    report, machine = answer.json, load_profile(tmp_path)
    assert machine is not None
    assert (report["seek_s"], report["transfer_s_per_byte"]) == (machine.disk.seek_s, machine.disk.transfer_s_per_byte)
    assert (report["at_once"], report["page_cache_bytes"]) == (machine.at_once, machine.page_cache_bytes)
    assert machine.page_cache_bytes > 0
    assert {name: OperatorCosts(**costs) for name, costs in report["operators"].items()} == machine.operators
    assert set(report["operators"]["mesh"]) == {field.name for field in fields(OperatorCosts)}
    assert [each["bytes"] for each in report["requests"]] == [8192, 65536, 1 << 20]
    assert all(each["bytes_per_s"] == each["bytes"] / each["seconds"] for each in report["requests"])
    assert set(report["operators"]) == {"mesh"}
    assert Path(report["profile"]).parent == small
    assert Path(report["plot"]) == tmp_path / "costs.png"
    assert (tmp_path / "costs.png").read_bytes().startswith(PNG)
    assert not list(small.glob("*.png"))


def test_operators_that_were_measured_are_reported(tmp_path: Path) -> None:
    report = run("calibrate", "--on", tmp_path, "--json").json
    assert report["operators"]["mesh"]["tuple_s"] == 1e-7
    (line,) = (line for line in run("calibrate", "--on", tmp_path).out.splitlines() if line.startswith("mesh"))
    assert line.split(maxsplit=1) == ["mesh", "tuple 100 ns, row 23.4 ns, step 45 µs, packet 6.2 ms"]


def test_by_default_it_is_the_disk_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("calibrate", "--json").json["path"] == str(tmp_path.resolve())


def test_a_file_system_without_direct_reads_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "_takes_direct", lambda path: False)
    answer = run("calibrate", "--on", tmp_path)
    assert "buffered reads" in answer.out
    assert "no direct reads (O_DIRECT)" in answer.out


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    answer = run("calibrate", "--on", tmp_path / "nowhere")
    assert (answer.code, answer.out) == (1, "")
    assert "nowhere' does not exist; name a folder or a file on the disk that holds R." in answer.err


@pytest.mark.parametrize(
    ("plot", "message"), [("costs.pdf", "ends in .png"), ("nowhere/costs.png", "there is no folder")]
)
def test_a_plot_that_cannot_be_written_is_refused_at_once(tmp_path: Path, plot: str, message: str) -> None:
    answer = run("calibrate", "--on", tmp_path, "--plot", tmp_path / plot)
    assert answer.code == 2
    assert message in " ".join(answer.err.replace("│", " ").split())
    assert load_profile(tmp_path) is None


def test_without_matplotlib_there_is_a_profile_and_no_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semistream.cli.plots.find_spec", lambda name: None)
    answer = run("calibrate", "--on", tmp_path)
    assert answer.code == 0
    assert "pip install 'semistream[plot]'" in answer.out
    assert load_profile(tmp_path) is not None
    refused = run("calibrate", "--on", tmp_path, "--plot", tmp_path / "costs.png")
    assert refused.code == 1
    assert "pip install 'semistream[plot]'" in refused.err


def calibration(disk: DiskCosts, operators: Mapping[str, OperatorCosts]) -> module.Calibration:
    """A measurement of all sizes of requests that takes exactly what the disk costs."""
    times = tuple(RequestTime(size, disk.request_s(size, 1), 5) for size in SIZES)
    machine = Machine("here", disk, operators)
    profile = MachineProfile(machine, MachineIdentity.here(), "a disk", "2026-11-17", "1")
    return module.Calibration(Path(), DiskProbe(times, disk, True, 1 << 28), profile, Path(), 1.0)


@pytest.mark.parametrize(
    ("seek_s", "bytes_per_s", "said"),
    [
        (106.3e-6, 1.26e9, "106 µs + bytes / (1.26 GB/s)"),
        (8e-3, 100e6, "8 ms + bytes / (100 MB/s)"),
        (800e-6, 5e9, "800 µs + bytes / (5 GB/s)"),
        (1e-6, 1e9, "1 µs + bytes / (1 GB/s)"),
    ],
)
def test_no_name_of_the_plot_is_written_over_another(seek_s: float, bytes_per_s: float, said: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from semistream.cli.calibration_plot import draw_plot

    figure = draw_plot(calibration(DiskCosts(seek_s, 1 / bytes_per_s), DEFAULT_MACHINE.operators))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert len(figure.axes) == 3
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks = axis.get_ticklabels(which="both")
            boxes = [each.get_window_extent() for each in ticks if each.get_text()]
            shown = [box for box in boxes if axes.bbox.expanded(1.5, 1.5).overlaps(box)]
            assert len(shown) >= 2
            assert not any(one.overlaps(other) for one, other in combinations(shown, 2))
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == said


def test_the_plot_has_a_bar_for_each_operator_that_was_measured() -> None:
    from semistream.cli.calibration_plot import draw_plot

    operators = {"sweep": OperatorCosts(tuple_s=4e-9, entry_s=13e-9, row_s=11e-9), "mesh": OperatorCosts(tuple_s=1e-7)}
    *_, bars = draw_plot(calibration(DiskCosts(1e-4, 1e-9), operators)).axes
    assert [label.get_text() for label in bars.get_yticklabels()] == ["sweep", "mesh"]
    assert [bar.get_width() for bar in bars.patches] == pytest.approx([17e-9, 1e-7])
    assert [text.get_text() for text in bars.texts] == ["17 ns", "100 ns"]
    assert len(draw_plot(calibration(DiskCosts(1e-4, 1e-9), {})).axes) == 2, "nothing but the disk"
