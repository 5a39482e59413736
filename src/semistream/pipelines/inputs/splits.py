"""Splits: the input that a task reads without Spark, from source files and from files of waiting or stalled rows."""

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
    """Row groups of a source's Parquet file, or all of its rows if none are named.

    ``reason`` says why all of its rows are invalid: the file cannot be read, or its columns differ from the source's.
    With ``stop``, unreadable content stops the pipeline instead of going to the quarantine. ``rows`` is the row count
    from the file's metadata. Under a latency goal, ``part`` is the split's number in the batch, and ``came_ms`` the
    arrival time of its rows in milliseconds. ``is_file`` marks a whole file whose columns have the source's types.
    With an ``owner``, the task takes only the rows of that part of R (`RoutedKeys`); other tasks read the same split
    for the other parts.
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
        """True for the one task that reports content of this split that belongs to no part of R."""
        return not self.owner

    def read(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the given columns, or all; a file that cannot be read yields one row with its name."""
        if self.reason is not None and not self.nbytes:
            yield pa.record_batch({"file": [self.path]})
            return
        with pq.ParquetFile(self.path, memory_map=False) as file:
            groups = self.row_groups or range(file.num_row_groups)
            yield from file.iter_batches(_READ_ROWS, row_groups=list(groups), columns=columns)


@dataclass(frozen=True)
class RowsSplit:
    """Files of waiting or stalled rows of one origin, below ``folder``.

    ``first`` names a file of flags beside each file stalled by duplicate detection: True for the first row of a key.
    """

    folder: str
    files: tuple[WaitingFile, ...]
    first: tuple[str | None, ...] = ()

    @property
    def nbytes(self) -> int:
        """Approximate bytes to read."""
        return sum(file.rows for file in self.files) * 64

    def read(self) -> Iterator[tuple[WaitingFile, pa.RecordBatch, pa.BooleanArray | None]]:
        """Yield the rows of each file, with their flags if there are any."""
        for file, flags in zip(self.files, self.first or [None] * len(self.files), strict=True):
            told = None if flags is None else pq.read_table(Path(self.folder) / flags).column(0).combine_chunks()
            begin = 0
            with pq.ParquetFile(Path(self.folder) / file.path, memory_map=False) as opened:
                for batch in opened.iter_batches(_READ_ROWS):
                    yield file, batch, None if told is None else told.slice(begin, batch.num_rows)
                    begin += batch.num_rows


Split = SourceSplit | RowsSplit | ArchiveSplit


def share_out(splits: Sequence[Split], tasks: int) -> list[tuple[Split, ...]]:
    """Divide splits among at most ``tasks`` tasks, about the same number of bytes each and at least one split.

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
    """Give every task, each the owner of a part of R, all splits of the source and the archive to pick its rows from.

    Reading the source or the archive several times costs far less than a pass over all of R in every task. Splits of
    invalid files and of waiting rows are divided among the tasks.

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
