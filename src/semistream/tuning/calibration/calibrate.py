"""Measures this machine and a disk of it, step by step, and keeps the profile for the cost models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from semistream.costs.identity import MachineIdentity, disk_identity, folder_on_disk, page_cache_bytes
from semistream.costs.machine import Machine, OperatorCosts
from semistream.costs.profiles import MachineProfile, load_profile, save_profile, writable_cache_folder
from semistream.errors import ProfileRefused
from semistream.relation import DiskCosts
from semistream.tuning.calibration.disk_probe import DiskProbe, DiskProber
from semistream.tuning.calibration.operator_probe import measure_operators
from semistream.tuning.calibration.progress import Progress

StepProgress = Callable[[str, float], None]
"""Is told which step is at work, and the share of it that is done."""


class MeasuredOperators(Protocol):
    """Operators that were run."""

    def costs(self, disk: DiskCosts) -> Mapping[str, OperatorCosts]:
        """What each takes, by name, on a disk of such costs."""


OperatorProbe = Callable[[Path, Progress, Callable[[], None]], MeasuredOperators]
"""Runs operators on relations in a folder on the disk, and calls the last argument once, between two runs, when about
half of the runs are done.
"""
_DISK_PARTS = 3  # before, amid and after the runs of the operators


def unwatched_steps(step: str, share: float) -> None:
    """Nobody looks."""


@dataclass(frozen=True)
class Calibration:
    """What was measured, on the disk of ``folder``, in so many seconds; and the file in which the profile is kept."""

    folder: Path
    disk: DiskProbe
    profile: MachineProfile
    file: Path
    seconds: float

    @property
    def machine(self) -> Machine:
        """The costs that the models go by from now on."""
        return self.profile.machine


def calibrate(
    path: Path | str = ".",
    *,
    progress: StepProgress = unwatched_steps,
    measure_disk: Callable[..., DiskProber] = DiskProber,
    measure_operators: OperatorProbe = measure_operators,
) -> Calibration:
    """Measure this machine and the disk that holds ``path``, and keep the profile in place of an earlier one.

    Whether there is a place to keep it is found out first. The disk is measured in three parts: before the operators,
    about halfway through their runs, and after them. So a disk that is slow for some seconds is not slow in all parts,
    and no operator runs while the disk is measured. Each step can be given otherwise.
    """
    began_s = time.perf_counter()
    folder = folder_on_disk(path)
    writable_cache_folder()
    with closing(measure_disk(folder, progress=lambda share: progress("disk", share))) as prober:
        probe_part = partial(prober.probe, 1 / _DISK_PARTS)
        probe_part()
        runs = measure_operators(folder, lambda share: progress("operators", share), probe_part)
        probe_part()
        disk = prober.result
    machine = Machine(
        f"{MachineIdentity.here()}, {disk_identity(folder)}",
        disk.costs,
        dict(runs.costs(disk.costs)),
        at_once=disk.at_once,
        page_cache_bytes=page_cache_bytes(),
    )
    file, profile = save_profile(machine, folder)
    return Calibration(folder, disk, profile, file, time.perf_counter() - began_s)


def calibrate_where_unknown(
    paths: Iterable[Path],
    *,
    progress: StepProgress = unwatched_steps,
    measure: Callable[..., Calibration] = calibrate,
) -> list[Calibration]:
    """Measure this machine with each disk that holds one of ``paths``, unless it has a profile that can be used."""
    return [measure(path, progress=progress) for path in paths if not _is_known(path)]


def _is_known(path: Path) -> bool:
    try:
        return load_profile(path) is not None
    except ProfileRefused:
        return False
