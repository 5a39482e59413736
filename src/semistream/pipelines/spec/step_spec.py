"""The steps of a pipeline: joins with relations, and the transformations that are built on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.part import SpecPart, as_value_error
from semistream.pipelines.spec.source_spec import RESERVED


class UpdatesSpec(SpecPart):
    """Where changes of a relation come from: files with its columns, or a topic with such rows as JSON.

    A row is a delete if its column ``op`` has the value ``delete``; without ``op`` all are upserts. A message without a
    value deletes the key that it has itself as a text. Within the files or a partition the last row of a key counts.
    """

    format: Literal["parquet", "json", "csv", "kafka"]
    path: Path | None = None
    servers: str | None = None
    topic: str | None = None
    op: str | None = None
    delete: str = "D"
    options: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _a_place(self) -> UpdatesSpec:
        if self.format == "kafka" and (self.servers is None or self.topic is None):
            raise ValueError("updates from Kafka need `servers` and `topic`")
        if self.format != "kafka" and self.path is None:
            raise ValueError(f"updates as {self.format} files need `path`, the folder that they come to")
        return self


class JoinStep(SpecPart):
    """A join of what comes with a relation.

    ``unmatched`` says what becomes of rows without a partner. With ``null`` they go on, with nulls for R's columns;
    with ``table`` they end in the pipeline's table of unmatched rows. With ``retry`` they wait, durable, are joined
    when R has a new version that has a partner for them, and end in that table if none has come within ``retry_for``.
    ``updates`` are applied to R between batches, each exactly once. ``disk`` says whether R is read past the system's
    page cache (``direct``; ``auto`` where the file system can) or through it (``buffered``).
    """

    relation: Path
    on: str | tuple[str, ...] | dict[str, str] | None = None
    where: str | tuple[str, ...] | None = None
    how: Literal["inner", "semi", "anti"] = "inner"
    columns: tuple[str, ...] | None = None
    suffix: str = "_right"
    operator: str = "auto"
    disk: Literal["auto", "direct", "buffered"] = "auto"
    unmatched: Literal["null", "table", "retry"] = "table"
    retry_for: str = "1 day"
    updates: UpdatesSpec | None = None
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @field_validator("unmatched", mode="before")
    @classmethod
    def _null_is_a_word(cls, value: Any) -> Any:
        return "null" if value is None else value  # YAML reads a bare null as none

    @field_validator("retry_for")
    @classmethod
    def _a_duration(cls, retry_for: str) -> str:
        as_value_error(parse_duration, retry_for)
        return retry_for

    @model_validator(mode="after")
    def _makes_sense(self) -> JoinStep:
        if self.on is None and self.where is None:
            raise ValueError("a join needs `on` or `where`; say which columns must be equal, or what else must hold")
        if self.unmatched == "null" and self.how != "inner":
            raise ValueError(f"unmatched: null gives R's columns as nulls, but a join of kind {self.how} has none")
        if self.unmatched == "retry" and self.how == "anti":
            raise ValueError("unmatched: retry waits for a partner, and an anti join lets pass what has none")
        return self


class KeyedStep(SpecPart):
    """A step that looks up columns of a row in a relation of keys, and adds those that are not there."""

    relation: Path
    key: tuple[str, ...] = Field(min_length=1)

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class SurrogateKeyStep(KeyedStep):
    """Surrogate keys (MESH Fig. 1): the production ``key`` of a ``source`` is looked up, and its number goes ``into`` a
    column. A key that is not there yet gets the next number, once, whatever is killed and replayed.

    ``source`` names this source: the same production key of another source has another number. Without it all sources
    that use the relation share one space of keys.
    """

    into: str
    source: str | None = None

    @field_validator("into")
    @classmethod
    def _not_reserved(cls, into: str) -> str:
        return _plain_column(into)


class DeduplicateStep(KeyedStep):
    """Duplicate detection: of rows with the same ``key`` the first that ever came is new, all others are duplicates.

    With ``drop`` these end in the table of duplicates, if the pipeline has one, and are counted; with ``flag`` they go
    on, and the column ``into`` tells which they are.
    """

    mode: Literal["drop", "flag"] = "drop"
    into: str = "is_duplicate"

    @field_validator("into")
    @classmethod
    def _not_reserved(cls, into: str) -> str:
        return _plain_column(into)


class ChangesStep(KeyedStep):
    """Change detection: each batch is a whole snapshot of a source's table, and rows are classed by the one before.

    The column ``into`` says ``inserted``, ``updated`` or ``unchanged``, and ``deleted`` for rows that are no longer
    there; those of the kinds ``emit`` go on.
    """

    into: str = "change"
    emit: tuple[Literal["inserted", "updated", "unchanged", "deleted"], ...] = ("inserted", "updated", "deleted")

    @field_validator("into")
    @classmethod
    def _not_reserved(cls, into: str) -> str:
        return _plain_column(into)


class StepSpec(SpecPart):
    """One step: a setting that says which, with the settings of that step."""

    join: JoinStep | None = None
    surrogate_key: SurrogateKeyStep | None = None
    deduplicate: DeduplicateStep | None = None
    changes: ChangesStep | None = None
    compute: dict[str, str] | None = Field(default=None, min_length=1)

    @field_validator("compute")
    @classmethod
    def _not_reserved(cls, compute: dict[str, str] | None) -> dict[str, str] | None:
        for name in compute or ():
            _plain_column(name)
        return compute

    @model_validator(mode="after")
    def _exactly_one(self) -> StepSpec:
        given = self.model_fields_set
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"a step is one of {known}; this one has {', '.join(sorted(given)) or 'none'}")
        (name,) = given
        if getattr(self, name) is None:
            raise ValueError(f"the step {name} has no settings")
        return self

    @property
    def keyed(self) -> KeyedStep | None:
        """The step, if it looks up a relation of keys of its own."""
        return self.surrogate_key or self.deduplicate or self.changes


def _plain_column(name: str) -> str:
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r}: names that begin with {RESERVED!r} are the pipeline's own; take another")
    return name
