"""SparkRunner: a slice of the histories on a real Spark, whose drivers and workers are killed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tests.faults.kills import KILLED
from tests.faults.spark_world import SparkWorld
from tests.simulation.runner import Fault

_STEPS_OF_A_POINT = 4  # of a local run, about: the others are calls of the system
_ENDED, _FAILED = 0, 1


class SparkRunner:
    """Runner on Spark: implements `Runner`. Disks are never full there, and drivers die at points of the ledger."""

    def __init__(self, spark: SparkWorld) -> None:
        self._spark = spark

    def set_up(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def run(self, spec: dict[str, Any], fault: Fault, *, only_repair: bool = False) -> None:
        """Run a pipeline once; a killed driver or worker may end it."""
        driver = worker = ""
        if fault.kill is not None and fault.kill.role == "worker":
            worker = f"*@{fault.kill.step // _STEPS_OF_A_POINT}"
        elif fault.kill is not None:
            driver = f"*@{fault.kill.step // _STEPS_OF_A_POINT}"
        code = self._spark.run(spec, driver, worker, reconcile=only_repair)
        allowed = {_ENDED, KILLED if driver else _ENDED, _FAILED if worker or only_repair else _ENDED}
        assert code in allowed, self._spark.tail()

    def finish(self, spec: dict[str, Any], *, only_repair: bool = False) -> None:
        """Run a pipeline until nothing is left to do."""
        assert self._spark.run(spec, reconcile=only_repair) == _ENDED, self._spark.tail()
