"""What a ledger says of a batch: what was decided, what was written, and which rows still wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from semistream.errors import PipelineError


@dataclass(frozen=True)
class WrittenFile:
    """A file of results that a worker wrote for a table, and what a commit must say of it.

    ``path`` is relative to the table's folder; ``stats`` are those of its columns, as Delta has them. A file of the
    source that was copied as it is has its number in the batch, ``part``, and when it came, ``came_ms``.
    """

    path: str
    rows: int
    nbytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    part: int | None = None
    came_ms: int | None = None


@dataclass(frozen=True)
class WaitingFile:
    """Rows on their way that wait before a ``link``, the first of them since a time.

    ``path`` is relative to the checkpoint's folder of rows. Files of the same ``origin`` may have results of the same
    source rows, by number. ``version`` is that of R in which they had no partner, if they were looked up.
    """

    path: str
    rows: int
    link: int
    origin: str
    since: float
    version: int | None = None


@dataclass(frozen=True)
class ArchivedFile:
    """Rows that a ``batch`` has shed, in a file; ``path`` is relative to the archive's folder.

    Of a copy of the source's file they are the ``rows`` from the row ``begin`` on, and ``part`` and ``came_ms`` say of
    them what columns say of others: see `WrittenFile`.
    """

    path: str
    rows: int
    batch: int
    part: int | None = None
    came_ms: int | None = None
    begin: int = 0

    @classmethod
    def of(cls, path: str, written: WrittenFile, batch: int, most_rows: int) -> list[Self]:
        """The rows of a file that was written; those of a copy in pieces of ``most_rows``."""
        if written.part is None:
            return [cls(path, written.rows, batch)]
        return [
            cls(path, min(most_rows, written.rows - begin), batch, written.part, written.came_ms, begin)
            for begin in range(0, written.rows, most_rows)
        ]


@dataclass(frozen=True)
class ArchivedBatch:
    """What a batch has shed and is not repaired yet.

    ``oldest`` is when the first of its rows came, ``shed_rows`` how many there were. Between ``missing_low`` and
    ``missing_high`` results were missing for them; of ``unvalued`` rows it is not known how many they give.
    """

    batch: int
    files: list[ArchivedFile]
    shed_rows: int
    oldest: float
    missing_low: int
    missing_high: int
    unvalued: int = 0

    @property
    def rows(self) -> int:
        """Those that are left."""
        return sum(file.rows for file in self.files)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """From its entry."""
        return cls(**{**content, "files": [ArchivedFile(**each) for each in content["files"]]})


@dataclass(frozen=True)
class ShedPlan:
    """What was decided for a batch that has more rows than may be joined: at most ``joined``, and which (as JSON)."""

    joined: int
    decision: str

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """From its entry."""
        return cls(int(content["joined"]), str(content["decision"]))


@dataclass(frozen=True)
class Plan:
    """What was decided for a batch before any work.

    ``source_batch`` is the batch of the source, if it has one; ``versions`` are those of each relation that it is
    joined with, ``files`` those of the source, and ``taken`` are the rows that waited and now go on. If it ``drains``,
    no row waits for others to share a pass. ``rejected`` are files of rows of updates that were no use, and
    ``repaired`` those of rows that were shed and now are joined.
    """

    batch: int
    source_batch: int | None
    versions: dict[str, int]
    at: float
    drains: bool = True
    taken: list[WaitingFile] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    repaired: list[ArchivedFile] = field(default_factory=list)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The plan of an entry."""
        taken = [WaitingFile(**each) for each in content["taken"]]
        repaired = [ArchivedFile(**each) for each in content.get("repaired", [])]
        return cls(**{**content, "taken": taken, "repaired": repaired})


@dataclass(frozen=True)
class TaskResult:
    """What some work for a batch came to: rows by outcome, the files of each table, and rows that go no further now.

    ``stalled`` rows need a decision for all of the batch, such as a new key, and go on within it; ``waiting`` ones in
    a later batch. ``rows_in`` is how many rows there were: each has one outcome or is stalled. Under a goal for latency
    ``arrivals`` says how many rows came when.
    """

    rows_in: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    files: dict[str, list[WrittenFile]] = field(default_factory=dict)
    waiting: list[WaitingFile] = field(default_factory=list)
    stalled: list[WaitingFile] = field(default_factory=list)
    stalled_rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)

    @classmethod
    def total(cls, parts: Iterable[TaskResult]) -> TaskResult:
        """What parts of the same phase came to all together."""
        total = cls()
        for part in parts:
            total = cls(
                total.rows_in + part.rows_in,
                _added(total.outcomes, part.outcomes),
                _joined(total.files, part.files),
                total.waiting + part.waiting,
                total.stalled + part.stalled,
                total.stalled_rows + part.stalled_rows,
                _added(total.counts, part.counts),
                {name: max(total.peaks.get(name, 0), part.peaks.get(name, 0)) for name in total.peaks | part.peaks},
                _added(total.arrivals, part.arrivals),
            )
        return total

    def followed_by(self, later: TaskResult) -> TaskResult:
        """This and a later phase, in which the stalled rows went on."""
        if later.rows_in != self.stalled_rows:
            raise PipelineError(
                f"{self.stalled_rows} rows were stalled, but {later.rows_in} went on. Nothing was committed. This is a "
                "bug in semistream; please report it."
            )
        return TaskResult(
            self.rows_in,
            _added(self.outcomes, later.outcomes),
            _joined(self.files, later.files),
            self.waiting + later.waiting,
            later.stalled,
            later.stalled_rows,
            _added(self.counts, later.counts),
            {name: max(self.peaks.get(name, 0), later.peaks.get(name, 0)) for name in self.peaks | later.peaks},
            _added(self.arrivals, later.arrivals),
        )

    def to_json(self) -> dict[str, Any]:
        """As an entry has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The work of an entry."""
        read: dict[str, Any] = {
            "files": {table: [WrittenFile(**each) for each in files] for table, files in content["files"].items()},
            "waiting": [WaitingFile(**each) for each in content["waiting"]],
            "stalled": [WaitingFile(**each) for each in content["stalled"]],
        }
        return cls(**{**content, **read})


@dataclass(frozen=True)
class BatchManifest:
    """All that a batch came to, and the rows that wait after it, of this batch and of those before."""

    batch: int
    work: TaskResult
    waiting: list[WaitingFile]

    def __post_init__(self) -> None:
        ended = sum(self.work.outcomes.values())
        if ended != self.work.rows_in or self.work.stalled_rows:
            raise PipelineError(
                f"batch {self.batch} has {self.work.rows_in} rows, but outcomes for {ended}: {self.work.outcomes}. "
                "Nothing of it was committed. This is a bug in semistream; please report it."
            )

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The manifest of an entry."""
        waiting = [WaitingFile(**each) for each in content["waiting"]]
        return cls(content["batch"], TaskResult.from_json(content["work"]), waiting)


def _added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def _joined(first: dict[str, list[WrittenFile]], second: dict[str, list[WrittenFile]]) -> dict[str, list[WrittenFile]]:
    return {name: first.get(name, []) + second.get(name, []) for name in {**first, **second}}
