"""Results of the commands as data, each with its text; `output.show` prints them as text or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import Report, bar, facts, size, table

if TYPE_CHECKING:
    from semistream.joins.parts.stats import JoinStats
    from semistream.kernels.array_types import Int32s, Int64s
    from semistream.relation import Relation
    from semistream.tuning.calibration.calibrate import Calibration


@dataclass(frozen=True)
class Spread:
    """Distribution of a quantity over the pages."""

    least: int
    median: int
    p90: int
    most: int

    @classmethod
    def of(cls, values: Int64s | Int32s) -> Spread | None:
        """Summarise some values; None if there are none."""
        if values.size == 0:
            return None
        import numpy as np

        return cls(*(int(q) for q in np.percentile(values, [0, 50, 90, 100], method="nearest")))


@dataclass(frozen=True)
class Column:
    """A column of a relation."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True)
class RelationInfo(Report):
    """One version of a relation. ``bytes`` is the size of its pages, all of which a full scan reads."""

    path: str
    version: int
    versions: list[int]
    created: str
    key: list[str]
    rows: int
    null_key_rows: int
    pages: int
    bytes: int
    page_bytes: int
    fill_factor: float
    bytes_per_page: Spread | None
    rows_per_page: Spread | None
    columns: list[Column]
    column_groups: list[list[str]]

    @classmethod
    def of(cls, relation: Relation) -> RelationInfo:
        """Describe an open relation without reading any page."""
        manifest = relation.manifest
        return cls(
            path=str(relation.path),
            version=relation.version,
            versions=relation.versions(),
            created=manifest.created,
            key=list(relation.key),
            rows=relation.num_rows,
            null_key_rows=relation.null_key_rows,
            pages=relation.num_pages,
            bytes=relation.nbytes,
            page_bytes=manifest.page_bytes,
            fill_factor=manifest.fill_factor,
            bytes_per_page=Spread.of(relation.table.nbytes),
            rows_per_page=Spread.of(relation.table.rows),
            columns=[Column(f.name, str(f.type), f.nullable) for f in relation.schema],
            column_groups=[list(group) for group in manifest.column_groups or (relation.schema.names,)],
        )

    def text(self) -> RenderableType:
        columns = Table(box=None, pad_edge=False, header_style="bold")
        group_of = {name: i for i, group in enumerate(self.column_groups) for name in group}
        for header in ("column", "type", ""):
            columns.add_column(header)
        if len(self.column_groups) > 1:
            columns.add_column("group", justify="right")
        for column in self.columns:
            place = f"key {self.key.index(column.name) + 1}" if column.name in self.key else ""
            marks = [place, "" if column.nullable else "not null"]
            group = [str(group_of[column.name])] if len(self.column_groups) > 1 else []
            columns.add_row(column.name, column.type, " ".join(filter(None, marks)), *group)
        unreachable = " (unreachable by joins)" if self.null_key_rows else ""
        return Group(
            facts(
                (
                    "version",
                    f"{self.version} (available: {', '.join(map(str, self.versions))}; published {self.created})",
                ),
                ("key", ", ".join(self.key)),
                ("rows", self.rows),
                ("null-key rows", f"{self.null_key_rows:,}{unreachable}"),
                ("bytes", size(self.bytes)),
                (
                    "pages",
                    f"{self.pages:,} of up to {format_bytes(self.page_bytes)}, fill factor {self.fill_factor:g}",
                ),
                ("bytes per page", _spread(self.bytes_per_page)),
                ("rows per page", _spread(self.rows_per_page)),
                title=self.path,
            ),
            "",
            columns,
        )


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "no pages"
    return f"min {spread.least:,}, median {spread.median:,}, 90th percentile {spread.p90:,}, max {spread.most:,}"


@dataclass(frozen=True)
class Written(Report):
    """A newly published version, from a build (``before`` is None) or from an update of version ``before``."""

    path: str
    version: int
    rows: int
    null_key_rows: int
    pages: int
    bytes: int
    seconds: float
    before: int | None = None
    rows_before: int | None = None

    @classmethod
    def of(cls, relation: Relation, seconds: float, before: Relation | None = None) -> Written:
        """Describe the version that ``relation`` has open."""
        return cls(
            path=str(relation.path),
            version=relation.version,
            rows=relation.num_rows,
            null_key_rows=relation.null_key_rows,
            pages=relation.num_pages,
            bytes=relation.nbytes,
            seconds=round(seconds, 3),
            before=before.version if before else None,
            rows_before=before.num_rows if before else None,
        )

    def text(self) -> RenderableType:
        rate = f" ({self.rows / self.seconds:,.0f} rows/s)" if self.before is None and self.seconds else ""
        change = f" (version {self.before} had {self.rows_before:,})" if self.before is not None else ""
        return facts(
            ("version", self.version),
            ("rows", f"{self.rows:,}{change}"),
            ("null-key rows", self.null_key_rows),
            ("pages", self.pages),
            ("bytes", size(self.bytes)),
            ("time", f"{self.seconds:.2f} s{rate}"),
            title=self.path,
        )


@dataclass(frozen=True)
class VerifiedRelation(Report):
    """A version read in full and found intact."""

    path: str
    version: int
    files: int
    pages: int
    rows: int
    bytes: int
    seconds: float
    ok: bool = True

    def text(self) -> RenderableType:
        return (
            f"{self.path}: version {self.version} is intact: {self.rows:,} rows in {self.pages:,} pages, "
            f"{self.files} files, {format_bytes(self.bytes)} read in {self.seconds:.2f} s"
        )


@dataclass(frozen=True)
class Vacuumed(Report):
    """Files removed by a vacuum, the remaining versions, and who needs some of them, by version."""

    path: str
    versions: list[int]
    removed: list[str]
    needed: dict[int, list[str]]

    def text(self) -> RenderableType:
        kept = ", ".join(map(str, self.versions))
        needed = [f"version {each}: needed by {' and '.join(by)}" for each, by in sorted(self.needed.items())]
        removed = f"{self.path}: {len(self.removed)} files removed; remaining versions: {kept}"
        return Group(*self.removed, removed, *needed)


@dataclass(frozen=True)
class Joined(Report):
    """A join written to ``out``; ``stats`` holds the counts of `JoinStats` and ``pages_read``.

    ``compiled_kernels`` were compiled meanwhile, once for this machine. The rate leaves ``compile_seconds`` out.
    """

    stream: str
    relation: str
    relation_version: int
    how: str
    out: str
    out_bytes: int
    seconds: float
    rows_per_s: int
    compiled_kernels: int
    compile_seconds: float
    stats: dict[str, Any]

    @staticmethod
    def counts(stats: JoinStats) -> dict[str, int | float]:
        """Return the operator's counts and the total of pages read."""
        return {**stats.as_dict(), "pages_read": stats.pages_read}

    def text(self) -> RenderableType:
        stats = self.stats
        stream = "standard input" if self.stream == "-" else self.stream
        out = "standard output" if self.out == "-" else self.out
        return facts(
            ("rows in", stats["rows_in"]),
            ("  matched", stats["matched"]),
            ("  unmatched", stats["unmatched"]),
            ("rows out", stats["outputs"]),
            ("pages read", f"{stats['pages_read']:,} in {stats['requests']:,} requests"),
            ("bytes read", format_bytes(stats["bytes_read"])),
            ("budget", f"{format_bytes(stats['budget_bytes'])}, peak {format_bytes(stats['peak_bytes'])}"),
            *self._compiled(),
            ("time", f"{self.seconds:.2f} s ({self.rows_per_s:,} rows/s{' without compiling' * self._has_compiled})"),
            ("written", f"{out} ({format_bytes(self.out_bytes)})"),
            title=f"{stream} {self.how} join {self.relation} (version {self.relation_version})",
        )

    @property
    def _has_compiled(self) -> bool:
        return self.compiled_kernels > 0

    def _compiled(self) -> list[tuple[str, object]]:
        if not self._has_compiled:
            return []
        kernels = "1 kernel" if self.compiled_kernels == 1 else f"{self.compiled_kernels} kernels"
        return [("compiled", f"{kernels} in {self.compile_seconds:.2f} s, once: the next join starts at once")]


@dataclass(frozen=True)
class RequestReport:
    """Disk requests of one size: their median time, and the time by the fitted costs."""

    bytes: int
    requests: int
    seconds: float
    fitted_seconds: float
    bytes_per_s: float


@dataclass(frozen=True)
class Calibrated(Report):
    """Measured costs of a machine and a disk, in seconds per unit.

    ``profile`` is the file that keeps them. ``plot`` is the file of their plot, None if none was drawn; ``notes`` then
    say why.
    """

    path: str
    processor: str
    cores: int
    disk: str
    direct: bool
    seek_s: float
    transfer_s_per_byte: float
    at_once: float
    page_cache_bytes: float
    requests: list[RequestReport]
    operators: dict[str, dict[str, float]]
    measured_at: str
    profile: str
    plot: str | None
    notes: list[str]
    seconds: float

    @classmethod
    def of(cls, calibration: Calibration, *, plot: str | None, notes: list[str]) -> Calibrated:
        """Report a calibration."""
        machine, profile, probe = calibration.machine, calibration.profile, calibration.disk
        return cls(
            path=str(calibration.folder),
            processor=profile.measured_on.processor,
            cores=profile.measured_on.cores,
            disk=profile.disk,
            direct=probe.direct,
            seek_s=machine.disk.seek_s,
            transfer_s_per_byte=machine.disk.transfer_s_per_byte,
            at_once=machine.at_once,
            page_cache_bytes=machine.page_cache_bytes,
            requests=[
                RequestReport(
                    bytes=each.nbytes,
                    requests=each.requests,
                    seconds=each.seconds,
                    fitted_seconds=machine.disk.request_s(each.nbytes, 1),
                    bytes_per_s=each.nbytes / each.seconds,
                )
                for each in probe.times
            ],
            operators={name: asdict(costs) for name, costs in machine.operators.items()},
            measured_at=profile.measured_at,
            profile=str(calibration.file),
            plot=plot,
            notes=[*filter(None, [probe.note]), *notes],
            seconds=round(calibration.seconds, 3),
        )

    def text(self) -> RenderableType:
        requests = table("bytes", "requests", "time", "fitted", "throughput")
        fastest = max(each.bytes_per_s for each in self.requests)
        for each in self.requests:
            times = [f"{seconds * 1e6:,.1f} µs" for seconds in (each.seconds, each.fitted_seconds)]
            rate = f"{format_bytes(round(each.bytes_per_s))}/s"
            requests.add_row(f"{each.bytes:,}", f"{each.requests:,}", *times, rate, bar(each.bytes_per_s, fastest))
        per_byte = self.transfer_s_per_byte
        transfer = f"{format_bytes(round(1 / per_byte))}/s" if per_byte else "no measurable time"
        return Group(
            facts(
                ("machine", f"{self.processor}, {self.cores} cores"),
                ("disk", f"{self.disk}, {'direct' if self.direct else 'buffered'} reads"),
                ("seek", f"{self.seek_s * 1e6:,.1f} µs"),
                ("transfer", transfer),
                ("at once", f"{self.at_once:.2f} times the throughput with concurrent requests"),
                ("page cache", f"{format_bytes(round(self.page_cache_bytes))} available for memory-mapped files"),
                title=self.path,
            ),
            "",
            requests,
            "",
            *_operators(self.operators),
            facts(
                *(("note", note) for note in self.notes),
                ("profile", self.profile),
                *([("plot", self.plot)] if self.plot else []),
                ("time", f"{self.seconds:.1f} s"),
            ),
        )


def _operators(operators: Mapping[str, Mapping[str, float]]) -> list[RenderableType]:
    """List each operator's measured cost per unit of work, leaving out costs of zero."""
    if not operators:
        return []
    from semistream.tuning.wording import cost_text  # imports NumPy, which other reports do not need

    costs_table = Table("operator", "time per unit", box=None, pad_edge=False, header_style="bold")
    for name, costs in operators.items():
        taken = (f"{unit.removesuffix('_s')} {cost_text(seconds)}" for unit, seconds in costs.items() if seconds)
        costs_table.add_row(name, ", ".join(taken))
    return [costs_table, ""]
