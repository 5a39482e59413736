"""Calibration: its steps in order, and their findings as the profile that the models use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from semistream.costs.machine import OperatorCosts
from semistream.costs.profiles import load_profile
from semistream.errors import CalibrationError, InvalidArgument
from semistream.relation import DiskCosts
from semistream.tuning.calibration.calibrate import Calibration, calibrate, calibrate_where_unknown
from semistream.tuning.calibration.disk_probe import DiskProber
from semistream.tuning.calibration.operator_probe import ProbeSize, measure_operators
from semistream.tuning.calibration.progress import Progress
from semistream.tuning.candidates import OPERATORS

SMALL_DISK = partial(DiskProber, file_bytes=1 << 20, sizes=(4096, 65536), limit_s=0.02)
SMALL_OPERATORS = partial(
    measure_operators, size=ProbeSize((30_000, 120_000), seconds=0.005, pushed=2_000, limit_s=2.0)
)


@dataclass(frozen=True)
class GivenCosts:
    """Operators of which the costs are known; on which disk they are asked for is ``seen``."""

    known: dict[str, OperatorCosts] = field(default_factory=dict)
    seen: list[DiskCosts] = field(default_factory=list)

    def costs(self, disk: DiskCosts) -> dict[str, OperatorCosts]:
        self.seen.append(disk)
        return self.known


def no_operators(folder: Path, progress: Progress, halfway: Callable[[], None]) -> GivenCosts:
    halfway()
    progress(1.0)
    return GivenCosts()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SEMISTREAM_CACHE", str(folder))
    return folder


@pytest.mark.slow
def test_what_was_measured_is_the_profile_of_the_disk(tmp_path: Path, cache: Path) -> None:
    steps: list[tuple[str, float]] = []
    calibration = calibrate(
        tmp_path,
        progress=lambda step, share: steps.append((step, share)),
        measure_disk=SMALL_DISK,
        measure_operators=SMALL_OPERATORS,
    )
    assert calibration.file.parent == cache
    assert load_profile(tmp_path) == calibration.machine
    assert calibration.machine.disk == calibration.disk.costs
    assert set(calibration.machine.operators) == set(OPERATORS)
    assert all(sum(astuple(costs)) > 0 for costs in calibration.machine.operators.values())
    assert calibration.profile.disk in calibration.machine.name
    assert list(dict.fromkeys(step for step, _ in steps)) == ["disk", "operators"]
    for measured in ("disk", "operators"):
        assert [share for step, share in steps if step == measured][-1] == pytest.approx(1)
    turns = [step for step, _ in groupby(step for step, _ in steps)]
    assert turns == ["disk", "operators", "disk", "operators", "disk"], "the disk before, amid and after the operators"
    assert sorted(tmp_path.iterdir()) == [cache]


def test_costs_of_operators_are_those_on_the_disk_that_was_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folders: list[Path] = []
    given = GivenCosts({"mesh": OperatorCosts(tuple_s=1e-7)})

    def run_operators(folder: Path, progress: Progress, halfway: Callable[[], None]) -> GivenCosts:
        folders.append(folder)
        halfway()
        return given

    calibration = calibrate(tmp_path / "file", measure_disk=SMALL_DISK, measure_operators=run_operators)
    assert folders == [tmp_path.resolve()]
    assert given.seen == [calibration.disk.costs], "all of its parts"
    assert load_profile(tmp_path) == calibration.machine
    assert calibration.machine.operators == given.known


def test_the_disk_is_measured_in_three_equal_parts_before_amid_and_after_the_operators(tmp_path: Path) -> None:
    events: list[object] = []

    class Disk(DiskProber):
        def probe(self, share: float = 1.0) -> None:
            events.append(share)
            super().probe(share)

    def run_operators(folder: Path, progress: Progress, halfway: Callable[[], None]) -> GivenCosts:
        events.append("first half")
        halfway()
        events.append("second half")
        return GivenCosts()

    small = partial(Disk, **SMALL_DISK.keywords)
    calibrate(tmp_path, measure_disk=small, measure_operators=run_operators)
    assert events == [1 / 3, "first half", 1 / 3, "second half", 1 / 3]


def unreached(*args: object, **options: object) -> DiskProber:
    raise AssertionError("nothing is measured before it is known that the profile can be kept")


def test_without_a_place_for_the_profile_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "file"))
    with pytest.raises(CalibrationError, match="set SEMISTREAM_CACHE"):
        calibrate(tmp_path, measure_disk=unreached)


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="does not exist"):
        calibrate(tmp_path / "nowhere", measure_disk=unreached)


def test_a_step_that_fails_leaves_the_old_profile(tmp_path: Path) -> None:
    before = calibrate(tmp_path, measure_disk=SMALL_DISK, measure_operators=no_operators).machine

    def fail(folder: Path, progress: Progress, halfway: Callable[[], None]) -> GivenCosts:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(tmp_path, measure_disk=SMALL_DISK, measure_operators=fail)
    assert load_profile(tmp_path) == before


def test_a_disk_is_measured_once_and_again_if_its_profile_is_refused(tmp_path: Path, cache: Path) -> None:
    measured: list[Path] = []

    def measure(path: Path, **options: Any) -> Calibration:
        measured.append(path)
        return calibrate(path, measure_disk=SMALL_DISK, measure_operators=no_operators, **options)

    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.mkdir()
    steps: list[str] = []
    (made,) = calibrate_where_unknown([first, second], progress=lambda step, _: steps.append(step), measure=measure)
    assert measured == [first], "both are on one disk"
    assert set(steps) == {"disk", "operators"}
    assert calibrate_where_unknown([first, second], measure=measure) == []
    made.file.write_text("{}")
    calibrate_where_unknown([second], measure=measure)
    assert measured == [first, second]
    assert load_profile(first) is not None


@pytest.mark.slow
def test_an_earlier_profile_makes_no_difference(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calibrate(tmp_path, measure_disk=SMALL_DISK, measure_operators=no_operators).file.write_text("{}")
    calibrate(tmp_path, measure_disk=SMALL_DISK, measure_operators=SMALL_OPERATORS)
    assert not caplog.records, "nobody is told to calibrate while it is done"
    assert load_profile(tmp_path) is not None
