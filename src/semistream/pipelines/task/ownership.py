"""Decide which rows of a split a task owns, where several tasks read it, and which files it need not read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.kernels.array_types import Bools
from semistream.pipelines.inputs.shed_archive import ArchiveSplit
from semistream.pipelines.inputs.splits import SourceSplit
from semistream.pipelines.overload.arrival_times import Arrived
from semistream.pipelines.overload.task_shedding import TaskShedding
from semistream.pipelines.tables.writer import TableLayout
from semistream.pipelines.task.routed_keys import RoutedKeys


def archives(split: SourceSplit, routed: RoutedKeys | None) -> bool:
    """True for the one task that archives this split's shed rows."""
    if split.owner is None or routed is None:
        return True
    return (split.part or 0) % routed.num_parts == split.owner


def own_rows(
    rows: pa.RecordBatch, split: SourceSplit | ArchiveSplit, routed: RoutedKeys, arrived: Arrived | None
) -> Bools:
    """Return a mask of the rows that the task owns: those of its part of R.

    Shed rows are an exception: one task owns all of a split's, the others none.
    """
    if arrived is None or arrived.kept is None or isinstance(split, ArchiveSplit):
        every: Bools = routed.parts(rows) == split.owner
        return every
    kept = arrived.kept.mask
    own = np.full(rows.num_rows, archives(split, routed))
    own[kept] = routed.parts(rows.filter(pa.array(kept))) == split.owner
    return own


def can_copy(split: SourceSplit, archive: TableLayout, shedding: TaskShedding) -> bool:
    """True if a split whose rows are all shed can be archived as an unchanged copy of its file."""
    same = all(archive.schema.field(field.name).type == field.type for field in shedding.source)
    return archive.takes_copies and same and split.is_file and split.rows > 0 and not shedding.reads_shed
