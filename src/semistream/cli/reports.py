"""Results of the commands as data; `output` turns them into text or JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

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
class RelationInfo:
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


@dataclass(frozen=True)
class Written:
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


@dataclass(frozen=True)
class VerifiedRelation:
    """A version read in full and found intact."""

    path: str
    version: int
    files: int
    pages: int
    rows: int
    bytes: int
    seconds: float
    ok: bool = True


@dataclass(frozen=True)
class Vacuumed:
    """Files removed by a vacuum, and the remaining versions."""

    path: str
    versions: list[int]
    removed: list[str]


@dataclass(frozen=True)
class Joined:
    """A join written to ``out``; ``stats`` holds the counts of `JoinStats` and ``pages_read``."""

    stream: str
    relation: str
    relation_version: int
    how: str
    out: str
    out_bytes: int
    seconds: float
    rows_per_s: int
    stats: dict[str, Any]

    @staticmethod
    def counts(stats: JoinStats) -> dict[str, int | float]:
        """Return the operator's counts and the total of pages read."""
        return {**stats.as_dict(), "pages_read": stats.pages_read}


@dataclass(frozen=True)
class RequestReport:
    """Disk requests of one size: their median time, and the time by the fitted costs."""

    bytes: int
    requests: int
    seconds: float
    fitted_seconds: float
    bytes_per_s: float


@dataclass(frozen=True)
class Calibrated:
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
