"""Workers: the contract of the processes that read a source's batch and run its tasks, such as Spark's executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from semistream.pipelines.inputs.splits import SourceSplit, Split
from semistream.pipelines.ledger.entries import Plan, TaskResult
from semistream.pipelines.overload.batch_overload import SourceRows
from semistream.pipelines.task.worker_task import PipelineTask


@dataclass(frozen=True)
class BatchInput:
    """Input of a batch: ``rows`` of the workers' own kind, such as a DataFrame, and ``splits`` that tasks read.

    ``rows`` has the source's columns and the raw text of unreadable rows. ``remarks`` are for the user.
    """

    rows: Any = None
    splits: list[SourceSplit] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class Workers(ABC):
    """Workers of a pipeline, with one batch of its source, or none. All that a batch needs beyond files goes here."""

    @property
    def computes(self) -> bool:
        """True if joined rows return to the workers, which compute further columns before they are written."""
        return False

    @abstractmethod
    def update_relations(self) -> None:
        """Apply new updates of the relations."""

    @abstractmethod
    def files(self, source_batch: int) -> list[str]:
        """Return the files of the source's batch, if the source has files."""

    @abstractmethod
    def read(self, plan: Plan) -> BatchInput:
        """Return the input of the source's batch, as it is planned."""

    @abstractmethod
    def source_rows(self, given: BatchInput, plan: Plan) -> SourceRows:
        """Return the rows of an input as shedding sees them."""

    @abstractmethod
    def run_phase(self, task: PipelineTask, rows: Any, splits: Sequence[Split]) -> TaskResult:
        """Run a phase over ``rows`` and the ``splits`` that tasks read themselves; return the total result."""
