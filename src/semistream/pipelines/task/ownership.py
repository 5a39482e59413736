"""Which rows of a split are a task's, where several tasks read it, and which files need not be read at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.pipelines.inputs.shed_archive import ArchiveSplit
from semistream.pipelines.inputs.splits import SourceSplit
from semistream.pipelines.overload.arrival_times import Arrived
from semistream.pipelines.overload.task_shedding import TaskShedding
from semistream.pipelines.steps.row_flags import Bools
from semistream.pipelines.tables.writer import TableLayout
from semistream.pipelines.task.routed_keys import RoutedKeys


def archives(split: SourceSplit, routed: RoutedKeys | None) -> bool:
    """Whether the task that was given a split archives what is shed of it: one does, of those that read it."""
    if split.owner is None or routed is None:
        return True
    return (split.part or 0) % routed.num_parts == split.owner


def own_rows(
    rows: pa.RecordBatch, split: SourceSplit | ArchiveSplit, routed: RoutedKeys, arrived: Arrived | None
) -> Bools:
    """Which rows of a split are the task's: those of its part of R, and of rows that are shed all or none."""
    if arrived is None or arrived.kept is None or isinstance(split, ArchiveSplit):
        every: Bools = routed.parts(rows) == split.owner
        return every
    kept = arrived.kept.mask
    own = np.full(rows.num_rows, archives(split, routed))
    own[kept] = routed.parts(rows.filter(pa.array(kept))) == split.owner
    return own


def can_copy(split: SourceSplit, archive: TableLayout, shedding: TaskShedding) -> bool:
    """Whether a split whose rows are all shed can go to the archive as the file that it is."""
    same = all(archive.schema.field(field.name).type == field.type for field in shedding.source)
    return archive.takes_copies and same and split.is_file and split.rows > 0 and not shedding.reads_shed
