"""calibrate(): measure this machine and one of its disks, and store the profile for the cost models."""

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
"""Called with the name of the current step and the share of it done, from 0 to 1."""


class MeasuredOperators(Protocol):
    """Measured runs of operators."""

    def costs(self, disk: DiskCosts) -> Mapping[str, OperatorCosts]:
        """Return the costs of each operator, by name, given the costs of the disk."""


OperatorProbe = Callable[[Path, Progress, Callable[[], None]], MeasuredOperators]
"""Runs operators on relations in a folder. Calls its last argument once, between two runs, about halfway."""
_DISK_PARTS = 3  # before, halfway through and after the runs of the operators


def unwatched_steps(step: str, share: float) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Calibration:
    """Result of a calibration on the disk of ``folder``: measurements, profile, its file, and the seconds taken."""

    folder: Path
    disk: DiskProbe
    profile: MachineProfile
    file: Path
    seconds: float

    @property
    def machine(self) -> Machine:
        """Measured costs, which the models use from now on."""
        return self.profile.machine


def calibrate(
    path: Path | str = ".",
    *,
    progress: StepProgress = unwatched_steps,
    measure_disk: Callable[..., DiskProber] = DiskProber,
    measure_operators: OperatorProbe = measure_operators,
) -> Calibration:
    """Measure this machine and the disk that holds ``path`` in under a minute, and store the profile.

    The profile atomically replaces an earlier one, and all temporary files are removed. Before it measures anything,
    the function raises `CalibrationError` if the folder of the profiles is not writable.

    The disk is measured in three parts: before the operators run, about halfway through their runs, and after them. A
    disk that is slow for some seconds is therefore not slow in all parts, and no operator runs during a part.

    Parameters
    ----------
    path : path or str
        The relation, or any file or folder on its disk. Default: the working directory.
    progress : callable
        Called with the current step, "disk" or "operators", and the share of it done, from 0 to 1. Default: ignored.
    measure_disk : callable
        Opens the `DiskProber` of a folder. Default: `DiskProber`, with a temporary file of up to 256 MiB.
    measure_operators : callable
        Runs the operators, on temporary relations in a folder. Default: all operators.

    Returns
    -------
    Calibration
        The measured ``machine``, the ``disk`` measurements, the stored ``profile``, its ``file``, and the ``seconds``
        taken.

    Examples
    --------
    ``calibrate("warehouse/products")`` takes under a minute. This call measures a small file and no operators:

    >>> import os, tempfile
    >>> from types import SimpleNamespace
    >>> from unittest.mock import patch
    >>> small_disk = partial(DiskProber, file_bytes=1 << 20, sizes=(8192, 65536), limit_s=0.1)
    >>> no_operators = lambda folder, progress, halfway: SimpleNamespace(costs=lambda disk: {})
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, SEMISTREAM_CACHE=folder):
    ...     calibration = calibrate(folder, measure_disk=small_disk, measure_operators=no_operators)
    >>> [time.nbytes for time in calibration.disk.times], calibration.file.suffix
    ([8192, 65536], '.json')

    References
    ----------
    docs/tuning.md, "Measure your machine".
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
    """Calibrate this machine for each disk that holds one of ``paths``, unless a valid profile exists."""
    return [measure(path, progress=progress) for path in paths if not _is_known(path)]


def _is_known(path: Path) -> bool:
    try:
        return load_profile(path) is not None
    except ProfileRefused:
        return False
