"""Splits: what a task reads by itself, of the source's Parquet files and of rows that waited or were stalled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.pipelines.inputs.shed_archive import ArchiveSplit
from semistream.pipelines.ledger.entries import WaitingFile

_READ_ROWS = 1 << 16


@dataclass(frozen=True)
class SourceSplit:
    """Row groups of a Parquet file of the source, or all of its rows if none are named.

    If there is a ``reason``, its columns are not those of the source, and all its rows are invalid for it.
    If what cannot be read is to ``stop`` the pipeline, it does not go to the quarantine. ``rows`` is how many the file
    says there are. Under a goal for latency, ``part`` is its number in the batch, and ``came_ms`` when its rows came.
    A split ``is_file`` if it is all of a file, whose columns have the source's types.
    If there is an ``owner``, the task takes only the rows of that part of R (`RoutedKeys`), and others read the same
    rows for the rest.
    """

    path: str
    row_groups: tuple[int, ...] = ()
    nbytes: int = 0
    reason: str | None = None
    stop: bool = False
    rows: int = 0
    part: int | None = None
    came_ms: int | None = None
    owner: int | None = None
    is_file: bool = False

    @property
    def tells(self) -> bool:
        """Whether its task is the one to tell of what is no row of any part."""
        return not self.owner

    def read(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Its rows, with some columns or all; of a file that cannot be read there is one, its name."""
        if self.reason is not None and not self.nbytes:
            yield pa.record_batch({"file": [self.path]})
            return
        with pq.ParquetFile(self.path, memory_map=False) as file:
            groups = self.row_groups or range(file.num_row_groups)
            yield from file.iter_batches(_READ_ROWS, row_groups=list(groups), columns=columns)


@dataclass(frozen=True)
class RowsSplit:
    """Rows of one origin that waited or were stalled, in files below ``folder``.

    ``first`` has for rows that were stalled to be told from duplicates a file of flags, beside each file of theirs.
    """

    folder: str
    files: tuple[WaitingFile, ...]
    first: tuple[str | None, ...] = ()

    @property
    def nbytes(self) -> int:
        """About how much there is to read."""
        return sum(file.rows for file in self.files) * 64

    def read(self) -> Iterator[tuple[WaitingFile, pa.RecordBatch, pa.BooleanArray | None]]:
        """Its rows, by file, with flags if there are some."""
        for file, flags in zip(self.files, self.first or [None] * len(self.files), strict=True):
            told = None if flags is None else pq.read_table(Path(self.folder) / flags).column(0).combine_chunks()
            begin = 0
            with pq.ParquetFile(Path(self.folder) / file.path, memory_map=False) as opened:
                for batch in opened.iter_batches(_READ_ROWS):
                    yield file, batch, None if told is None else told.slice(begin, batch.num_rows)
                    begin += batch.num_rows


Split = SourceSplit | RowsSplit | ArchiveSplit


def share_out(splits: Sequence[Split], tasks: int) -> list[tuple[Split, ...]]:
    """The splits for each task, about as much for each; there are no tasks without any.

    >>> [len(part) for part in share_out([SourceSplit("a", nbytes=5), SourceSplit("b", nbytes=4), SourceSplit("c")], 2)]
    [1, 2]
    """
    parts: list[list[Split]] = [[] for _ in range(min(tasks, len(splits)))]
    loads = [0] * len(parts)
    for split in sorted(splits, key=lambda each: -each.nbytes):
        least = loads.index(min(loads))
        parts[least].append(split)
        loads[least] += split.nbytes + 1
    return [tuple(part) for part in parts]


def share_among_owners(splits: Sequence[Split], owners: int) -> list[tuple[Split, ...]]:
    """The splits for each task, where each of them owns a part of R: all read the source's rows, and keep their own.

    To read rows of the source, or of the archive, several times takes far less than for every task to go over all of R.
    What is known to be no rows, and rows that waited, are shared out.

    >>> shared = share_among_owners([SourceSplit("a"), SourceSplit("b", reason="broken")], 2)
    >>> [[(split.path, split.owner) for split in part] for part in shared]
    [[('a', 0), ('b', None)], [('a', 1)]]
    """
    read = [
        split
        for split in splits
        if isinstance(split, ArchiveSplit) or (isinstance(split, SourceSplit) and split.reason is None)
    ]
    others = share_out([split for split in splits if split not in read], owners)
    if not read:
        return others
    others += [()] * (owners - len(others))
    return [(*(replace(split, owner=part) for split in read), *others[part]) for part in range(owners)]
