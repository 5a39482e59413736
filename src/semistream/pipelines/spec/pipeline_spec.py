"""PipelineSpec: a pipeline as data, from source through steps to tables, validated before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from semistream.budget import parse_bytes
from semistream.errors import shortened
from semistream.pipelines.spec.durations import Duration, parse_duration
from semistream.pipelines.spec.overload_spec import OverloadSpec
from semistream.pipelines.spec.part import LocalPath, SpecPart, as_value_error
from semistream.pipelines.spec.source_spec import FileSource, SourceSpec
from semistream.pipelines.spec.step_spec import JoinStep, StepSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{,99}")
_LEAST_TRIGGERS = 3  # triggers that the latency goal must span: a row waits for one, and then for its batch
_LIMITS = ("files_per_batch", "rows_per_batch")
ARCHIVED_BY, ARCHIVED_IN = "shed_by", "batch_id"
"""Archive columns with the pipeline and batch that shed a row; repaired rows are deleted by them."""


class TableSpec(SpecPart):
    """Destination of rows: a warehouse table that the pipeline appends to, a Kafka topic, or the console.

    ``options`` go to Spark's Kafka connector. ``rows`` is the number of rows of each batch shown on the console.
    """

    format: Literal["delta", "parquet", "kafka", "console"] = "delta"
    path: LocalPath | None = None
    partition_by: tuple[str, ...] = ()
    servers: str | None = None
    topic: str | None = None
    options: dict[str, str] = Field(default_factory=dict)
    rows: int = Field(default=10, ge=1, le=10_000)

    @model_validator(mode="after")
    def _a_place(self) -> TableSpec:
        if self.format in ("delta", "parquet") and self.path is None:
            raise ValueError(f"a {self.format} table needs `path`, its folder")
        if self.format == "kafka" and (self.servers is None or self.topic is None):
            raise ValueError("a kafka table needs `servers` and `topic`")
        if self.partition_by and self.path is None:
            raise ValueError(f"partition_by is for tables with a folder, not for {self.format}")
        if self.options and self.format != "kafka":
            raise ValueError(f"options are for kafka, not for {self.format}")
        return self

    @property
    def place(self) -> str:
        """Destination of rows, as messages show it."""
        if self.format == "kafka":
            return f"the topic {self.topic} of {self.servers}"
        return "the console" if self.path is None else str(self.path)


class PipelineSpec(SpecPart):
    """Pipeline from a ``source`` through ``steps`` to the table ``sink``, within ``memory`` in each worker.

    Rows without a match end in ``unmatched``, rows that break the source's schema or rules in ``quarantine``, and
    duplicates in ``duplicates``, if given. The folder ``checkpoint`` holds the state for a restart. Batches begin at
    intervals of ``every``. With ``latency``, only rows with hot keys leave with their batch; the others wait until
    enough of them share a pass over R, but at most ``latency``. With ``overload``, rows are shed when there is no time
    to join them all.
    """

    name: str
    source: SourceSpec
    steps: tuple[StepSpec, ...] = Field(min_length=1)
    sink: TableSpec
    unmatched: TableSpec | None = None
    quarantine: TableSpec
    duplicates: TableSpec | None = None
    checkpoint: LocalPath
    memory: str | int = "256MB"
    every: Duration = "1s"
    latency: Duration | None = None
    route: Literal["auto", "none", "range"] = "auto"
    overload: OverloadSpec | None = None

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{shortened(name)} is not a valid pipeline name; begin with a letter or digit, and use up to 100 "
                "letters, digits, '_', '.' and '-'"
            )
        return name

    @field_validator("memory")
    @classmethod
    def _memory_in_bytes(cls, memory: str | int) -> str | int:
        as_value_error(parse_bytes, memory, of=1 << 40)
        return memory

    @model_validator(mode="after")
    def _tables_apart(self) -> PipelineSpec:
        """Refuse tables that share a folder with each other or with an input: a table owns all files in its folder."""
        settings = {"sink": self.sink, "unmatched": self.unmatched, "quarantine": self.quarantine}
        tables = {**settings, "duplicates": self.duplicates}
        owned = {name: table.path for name, table in tables.items() if table is not None and table.path is not None}
        owned["checkpoint"] = self.checkpoint
        if self.overload is not None:
            owned["the archive"] = self.overload.archive.path
        read = {f"the relation {path.name}": path for path in self.relations}
        if isinstance(self.source, FileSource):
            read["the source"] = self.source.path
        for (name, path), (other, there) in [
            *combinations(owned.items(), 2),
            *product([each for each in owned.items() if each[0] != "checkpoint"], read.items()),
        ]:
            if _within(path, there) or _within(there, path):
                raise ValueError(
                    f"{name} and {other} share a folder: {path} and {there}. Give each its own folder, outside of the "
                    "other's"
                )
        return self

    @model_validator(mode="after")
    def _updates_apart(self) -> PipelineSpec:
        """Refuse two joins with updates of the same relation name: the ledger records updates by that name."""
        names = [step.join.relation.name for step in self.steps if step.join is not None and step.join.updates]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two joins have updates of a relation {name!r}; keep the updates of one, or rename a relation"
                )
        return self

    @model_validator(mode="after")
    def _tables_for_all(self) -> PipelineSpec:
        if self.unmatched is None and any(_ends_unmatched(step.join) for step in self.steps if step.join is not None):
            raise ValueError(
                "a join sends rows without a match to a table: give the pipeline an `unmatched` table, or set "
                "unmatched: null in the join"
            )
        return self

    @model_validator(mode="after")
    def _steps_in_order(self) -> PipelineSpec:
        kinds = [next(iter(step.model_fields_set)) for step in self.steps]
        inner = "".join("c" if kind == "compute" else "j" for kind in kinds).strip("c")
        if not inner:
            raise ValueError("a pipeline needs at least one joining step; compute alone is not enough")
        if "c" in inner:
            raise ValueError("compute must come before the first joining step or after the last")
        if "changes" in kinds:
            self._require_snapshots(kinds)
        if self.latency is not None and "join" not in kinds:
            raise ValueError("latency needs a join step: rows wait for a pass over its relation")
        return self

    @model_validator(mode="after")
    def _overload_fits(self) -> PipelineSpec:
        """Refuse settings that would change the results of shed rows, or hide waiting rows from a batch."""
        if self.overload is None:
            return self
        goal_s, every_s = self.overload.goal_s, parse_duration(self.every)
        if goal_s < round(_LEAST_TRIGGERS * every_s, 9):  # rounded because 3 * 0.1 > 0.3
            raise ValueError(
                f"overload: a latency of {self.overload.latency} is not possible with a batch every {self.every}: rows "
                f"wait for their batch to begin, and then for it to end. Set at least {_LEAST_TRIGGERS * every_s:g}s, "
                "or a shorter `every`"
            )
        for limit in _LIMITS:
            if limit in self.source.model_fields_set:
                raise ValueError(
                    f"overload cannot be combined with {limit}: rows that wait outside of a batch are not seen, and "
                    f"are late. Leave {limit} out: each batch then takes in all waiting rows"
                )
        if self.latency is not None:
            raise ValueError("overload cannot be combined with latency, which makes rows wait on purpose; set only one")
        if self.route == "range" and self.source.format != "parquet":
            raise ValueError(
                f"overload allows route: range only for Parquet, which workers read themselves, not for "
                f"{self.source.format}: rows sent to other workers arrive in no fixed order, and a replay would shed "
                "others. Leave route out"
            )
        for step in self.steps:
            if step.deduplicate is not None:
                raise ValueError(
                    "overload cannot be combined with deduplicate: which of two rows with the same key came first "
                    "would depend on which was shed. Deduplicate in a separate pipeline"
                )
            if step.changes is not None:
                raise ValueError("overload cannot be combined with changes: shed rows would look deleted")
        return self._valued_by_a_join(self.overload)

    def _valued_by_a_join(self, overload: OverloadSpec) -> PipelineSpec:
        joins = [step.join.relation.name for step in self.steps if step.join is not None]
        if overload.relation is not None and joins.count(overload.relation) != 1:
            raise ValueError(
                f"overload: relation is {overload.relation!r}, but the joins are with "
                f"{', '.join(map(repr, joins)) or 'none'}; name a relation that exactly one join uses"
            )
        if overload.strategy in ("top_w", "cluster_sampling") and not joins:
            raise ValueError(f"overload: {overload.strategy} needs a join to count matches; use keep_w or sample_w")
        return self

    def _require_snapshots(self, kinds: Sequence[str]) -> None:
        if [kind for kind in kinds if kind != "compute"] != ["changes"]:
            raise ValueError("changes must be the only joining step; move the others to a separate pipeline")
        if not isinstance(self.source, FileSource):
            raise ValueError(f"changes needs whole snapshots as files; the source is {self.source.format}")
        if self.latency is not None:
            raise ValueError("latency cannot be combined with changes: a snapshot is compared as a whole")

    @property
    def tables(self) -> dict[str, TableSpec]:
        """Tables by the outcome of the rows that end in them."""
        tables = {
            "joined": self.sink,
            "unmatched": self.unmatched,
            "invalid": self.quarantine,
            "duplicate": self.duplicates,
            "shed": self._archive,
        }
        return {outcome: table for outcome, table in tables.items() if table is not None}

    @property
    def _archive(self) -> TableSpec | None:
        if self.overload is None:
            return None
        archive = self.overload.archive
        return TableSpec(format=archive.format, path=archive.path, partition_by=(ARCHIVED_BY, ARCHIVED_IN))

    @property
    def relations(self) -> list[Path]:
        """Relations of the steps, in order."""
        parts = [step.join or step.keyed for step in self.steps]
        return [part.relation for part in parts if part is not None]

    def below(self, folder: Path) -> PipelineSpec:
        """Return the same spec with every relative path resolved against ``folder``."""
        return PipelineSpec.model_validate(_below(self.model_dump(by_alias=True, exclude_unset=True), folder))


def _within(path: Path, folder: Path) -> bool:
    return Path(os.path.normpath(path)).is_relative_to(os.path.normpath(folder))


def _ends_unmatched(join: JoinStep) -> bool:
    return join.unmatched != "null"


def _below(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        return folder / value
    if isinstance(value, Mapping):
        return {name: _below(each, folder) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_below(each, folder) for each in value]
    return value
