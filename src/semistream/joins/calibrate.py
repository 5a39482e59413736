"""Measures this machine and a disk of it, step by step, and keeps the profile for the cost models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from semistream.errors import ProfileRefused
from semistream.joins.kernel_probe import measure_kernels
from semistream.joins.operator_probe import measure_operators
from semistream.tuning.disk_probe import DiskProbe, probe_disk
from semistream.tuning.identity import MachineIdentity, disk_identity, folder_on_disk
from semistream.tuning.machine import KernelCosts, Machine, OperatorCosts
from semistream.tuning.page_cache import page_cache_bytes
from semistream.tuning.profiles import MachineProfile, load_profile, save_profile, writable_cache_folder
from semistream.tuning.progress import Progress

StepProgress = Callable[[str, float], None]
"""Is told which step is at work, and the share of it that is done."""
OperatorProbe = Callable[[Path, Machine, Progress], Mapping[str, OperatorCosts]]
"""Measures whole operators, by name, with a folder on the disk and the machine as far as it was measured already."""


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
    measure_disk: Callable[..., DiskProbe] = probe_disk,
    measure_costs: Callable[..., KernelCosts] = measure_kernels,
    measure_operators: OperatorProbe = measure_operators,
) -> Calibration:
    """Measure this machine and the disk that holds ``path``, and keep the profile in place of an earlier one.

    Whether there is a place to keep it is found out first. Each step is a function that can be given otherwise.
    """
    began_s = time.perf_counter()
    folder = folder_on_disk(path)
    writable_cache_folder()
    disk = measure_disk(folder, progress=lambda share: progress("disk", share))
    kernels = measure_costs(lambda share: progress("kernels", share))
    machine = Machine(
        f"{MachineIdentity.here()}, {disk_identity(folder)}",
        disk.costs,
        kernels,
        at_once=disk.at_once,
        page_cache_bytes=page_cache_bytes(),
    )
    operators = measure_operators(folder, machine, lambda share: progress("operators", share))
    machine = replace(machine, operators=dict(operators))
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
