"""Runners: how a history runs its pipelines, here without Spark, and what befalls a run."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from deltalake.exceptions import DeltaError

from semistream.errors import SemistreamError
from tests.simulation.local_driver import drive
from tests.simulation.local_workers import forget_workers
from tests.simulation.world import Kill, World
from tests.spark.pipelines.overloads import ROW_S, believe_slow


@dataclass(frozen=True)
class Fault:
    """What befalls a run: a kill, a full disk, or nothing; and how the run is set up."""

    slots: int = 2
    late: bool = False
    kill: Kill | None = None
    disk_bytes: int | None = None

    def __str__(self) -> str:
        what = "no fault"
        if self.kill is not None:
            what = f"{self.kill.role} killed at step {self.kill.step}"
        elif self.disk_bytes is not None:
            what = f"files end at {self.disk_bytes} bytes"
        return f"{self.slots} slots, {'late' if self.late else 'early'} publication, {what}"


class Runner(Protocol):
    """Runs the pipelines of a history."""

    def set_up(self) -> AbstractContextManager[None]:
        """Prepare for a history."""

    def run(self, spec: dict[str, Any], fault: Fault, *, only_repair: bool = False) -> None:
        """Run a pipeline, or repair its shed rows, until it ends or the fault ends it."""

    def finish(self, spec: dict[str, Any], *, only_repair: bool = False) -> None:
        """Run a pipeline until nothing is left to do."""


class LocalRunner:
    """Runner in this process: implements `Runner`."""

    def __init__(self, world: World) -> None:
        self._world = world

    @contextmanager
    def set_up(self) -> Iterator[None]:
        """Count steps, and let overloaded pipelines believe that a row takes long."""
        with self._world.simulated(), pytest.MonkeyPatch.context() as patch:
            believe_slow(ROW_S, patch.setattr)
            try:
                yield
            finally:
                forget_workers()

    def run(self, spec: dict[str, Any], fault: Fault, *, only_repair: bool = False) -> None:
        """Run a pipeline once. Only a full disk may end it with an error."""

        def work() -> None:
            drive(self._world, spec, slots=fault.slots, late=fault.late, kill=fault.kill, only_repair=only_repair)

        try:
            with full_disk(fault.disk_bytes):
                alive = self._world.run("driver", fault.kill, work)
        except (SemistreamError, OSError, DeltaError) as error:
            if fault.disk_bytes is None and not (only_repair and "Run the pipeline first" in str(error)):
                raise
            alive = False
        if not alive:
            forget_workers()

    def finish(self, spec: dict[str, Any], *, only_repair: bool = False) -> None:
        """Run a pipeline that must end by itself; without new input, it must then have nothing left to do."""
        drive(self._world, spec, only_repair=only_repair)
        before = len(self._world.steps)
        drive(self._world, spec, only_repair=only_repair)
        planned = self._world.steps[before:].count("before planned")
        assert planned <= 1, f"{planned} batches were planned though nothing was left"


@contextmanager
def full_disk(most_bytes: int | None) -> Iterator[None]:
    """Let no file grow beyond a size within the block: a write then fails, whoever does it."""
    if most_bytes is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
