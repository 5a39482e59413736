"""Entries of the ledger: the plan of a batch, the files it wrote, and the rows that still wait."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from semistream.errors import PipelineError


def _inside(path: str) -> str:
    if not path or "\0" in path or PurePath(path).is_absolute() or ".." in PurePath(path).parts:
        raise ValueError(f"{path[:80]!r} is not a path inside a folder")
    return path


Count = Annotated[int, Field(ge=0, lt=1 << 63)]
InnerPath = Annotated[str, AfterValidator(_inside)]
"""A path below the folder that it is relative to."""


class Entry:
    """Content of a ledger's file or of a task's report, as JSON. Reading checks every field, whoever wrote it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    def to_json(self) -> bytes:
        """Return the JSON text."""
        content = asdict(self)  # type: ignore[call-overload]
        return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Build from JSON text; raise `ValueError` with the place and the fault if it is not such an entry."""
        try:
            entry: Self = _reader(cls).validate_json(content)  # type: ignore[arg-type]
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, found["loc"]))[:200]
            raise ValueError(f"{place}: {found['msg']}" if place else found["msg"]) from None
        if not content.strip(b"{} \r\n\t"):
            raise ValueError("it has no fields")
        return entry


@cache
def _reader(kind: type[Entry]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@dataclass(frozen=True)
class WrittenFile(Entry):
    """File that a worker wrote for a table, with everything a commit needs.

    ``path`` is relative to the table's folder; ``stats`` are column statistics in Delta's format. For an unchanged copy
    of a source file, ``part`` is its number in the batch and ``came_ms`` its arrival time in milliseconds.
    """

    path: InnerPath
    rows: Count
    nbytes: Count
    partition: dict[str, str | None] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    part: int | None = None
    came_ms: int | None = None


@dataclass(frozen=True)
class WaitingFile(Entry):
    """File of rows that wait before a ``link`` of the chain, the oldest ``since`` a time in seconds.

    ``path`` is relative to the checkpoint's folder of rows. Files of one ``origin`` share the numbers of source rows,
    and may hold results of the same row. ``version`` is the version of R without a match for the rows; None if they
    were not looked up.
    """

    path: InnerPath
    rows: Count
    link: int
    origin: str
    since: float
    version: int | None = None


@dataclass(frozen=True)
class ArchivedFile(Entry):
    """Archive file with rows that a ``batch`` has shed; ``path`` is relative to the archive's folder.

    In a copy of a source file, the entry covers ``rows`` rows from row ``begin`` on. ``part`` and ``came_ms`` then
    replace the archive's own columns (see `WrittenFile`).
    """

    path: InnerPath
    rows: Count
    batch: int
    part: int | None = None
    came_ms: int | None = None
    begin: int = 0

    @classmethod
    def of(cls, path: str, written: WrittenFile, batch: int, most_rows: int) -> list[Self]:
        """Return the entries of a written file: one, or for a copy one for each piece of ``most_rows`` rows."""
        if written.part is None:
            return [cls(path, written.rows, batch)]
        return [
            cls(path, min(most_rows, written.rows - begin), batch, written.part, written.came_ms, begin)
            for begin in range(0, written.rows, most_rows)
        ]


@dataclass(frozen=True)
class ArchivedBatch(Entry):
    """Rows that a batch has shed, as far as they are not yet repaired.

    The batch shed ``shed_rows`` rows, the first of which came at ``oldest``. Between ``missing_low`` and
    ``missing_high`` results were missing for them, plus an unknown number for the ``unvalued`` rows.
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
        """Rows not yet repaired."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class ShedPlan(Entry):
    """Shedding of a batch with too many rows: it joins at most ``joined``, chosen by ``decision`` (JSON)."""

    joined: int
    decision: str


@dataclass(frozen=True)
class Plan(Entry):
    """Plan of a batch, recorded before any work.

    ``source_batch`` is the source's batch number, if it has one. ``versions`` are the versions of the relations to
    join with, ``files`` the source files, and ``taken`` the waiting rows that go on in this batch. If the batch
    ``drains``, no row waits for others to share a pass over R. ``rejected`` names files of rejected update rows,
    ``repaired`` the archived rows that this batch joins.
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


@dataclass(frozen=True)
class TaskResult(Entry):
    """Result of a task, a phase or a batch: rows by outcome, files by table, and rows that did not finish.

    ``stalled`` rows need a decision over the whole batch, such as a new surrogate key, and go on within the batch;
    ``waiting`` rows go on in a later one. ``rows_in`` counts the input rows, each of which has one outcome or is
    stalled. ``counts`` add up over tasks, ``peaks`` are maxima. Under a latency goal, ``arrivals`` counts rows by
    arrival tick.
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
        """Return the combined result of the tasks of one phase."""
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
        """Combine this phase with the next one, in which the stalled rows went on."""
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


@dataclass(frozen=True)
class BatchManifest(Entry):
    """Complete result of a batch, with all rows that wait after it, from this batch and earlier ones.

    Raise `PipelineError` unless every input row has exactly one outcome.
    """

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


def _added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def _joined(first: dict[str, list[WrittenFile]], second: dict[str, list[WrittenFile]]) -> dict[str, list[WrittenFile]]:
    return {name: first.get(name, []) + second.get(name, []) for name in {**first, **second}}
