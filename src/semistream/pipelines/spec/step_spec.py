"""Steps of a pipeline: joins with relations, and the transformations built on joins."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from semistream.joins.condition.kinds import join_kind
from semistream.pipelines.spec.durations import Duration
from semistream.pipelines.spec.part import LocalPath, SpecPart
from semistream.pipelines.spec.source_spec import RESERVED


def _plain_column(name: str) -> str:
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r}: names that begin with {RESERVED!r} are reserved for the pipeline; use another")
    return name


PlainColumn = Annotated[str, AfterValidator(_plain_column)]
"""Name of a column that a step adds."""


class UpdatesSpec(SpecPart):
    """Source of changes to a relation: files with its columns, or a Kafka topic with such rows in JSON.

    A row is a delete if its column ``op`` has the value ``delete``; without ``op`` all rows are upserts. A message
    without a value deletes the key that the message's own key holds as text. Of several rows with the same key, in the
    files or in a topic's partition, the last one counts.
    """

    format: Literal["parquet", "json", "csv", "kafka"]
    path: LocalPath | None = None
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
            raise ValueError(f"updates from {self.format} files need `path`, the folder they arrive in")
        return self


class JoinStep(SpecPart):
    """Join of the incoming rows with a relation.

    ``unmatched`` decides what happens to rows without a match. With ``null`` they go on, with nulls for R's columns.
    With ``table`` they end in the pipeline's table of unmatched rows. With ``retry`` they wait in durable files, join
    again when R has a new version, and end in that table if no match appears within ``retry_for``. ``columns`` names
    R's columns in the result, or maps them to the names they get there. ``updates`` are applied to R between batches,
    each exactly once. ``disk`` reads R past the system's page cache (``direct``, or ``auto`` where the file system
    supports it) or through it (``buffered``).
    """

    relation: LocalPath
    on: str | tuple[str, ...] | dict[str, str] | None = None
    where: str | tuple[str, ...] | None = None
    how: Literal["inner", "semi", "anti"] = "inner"
    columns: str | tuple[str, ...] | dict[str, PlainColumn] | None = None
    suffix: str = "_right"
    operator: str = "auto"
    disk: Literal["auto", "direct", "buffered"] = "auto"
    unmatched: Literal["null", "table", "retry"] = "table"
    retry_for: Duration = "1 day"
    updates: UpdatesSpec | None = None
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @field_validator("how", mode="before")
    @classmethod
    def _kind_of_join(cls, how: Any) -> Any:
        kind = join_kind(how)
        if kind == "left":
            raise ValueError("a join with how: left is one with how: inner and unmatched: null. Write these")
        return kind

    @field_validator("unmatched", mode="before")
    @classmethod
    def _null_is_a_word(cls, value: Any) -> Any:
        return "null" if value is None else value  # YAML reads a bare null as None

    @model_validator(mode="after")
    def _makes_sense(self) -> JoinStep:
        if self.on is None and self.where is None:
            raise ValueError("a join needs `on`, the columns that must be equal, or `where`, another condition")
        if self.unmatched == "null" and self.how != "inner":
            raise ValueError(f"unmatched: null returns R's columns as nulls, but a join with how: {self.how} has none")
        if self.unmatched == "retry" and self.how == "anti":
            raise ValueError("unmatched: retry waits for a match, but an anti join passes on rows without one")
        return self


class KeyedStep(SpecPart):
    """Step that looks up the ``key`` columns of a row in a relation of keys, and adds new keys to it."""

    relation: LocalPath
    key: tuple[str, ...] = Field(min_length=1)

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class SurrogateKeyStep(KeyedStep):
    """Surrogate keys (MESH Fig. 1): look up the production ``key``, and put its number ``into`` a column.

    A new key gets the next number, exactly once, also after a crash and replay. ``source`` names this source: the same
    production key of another source has another number. Without it, all sources that use the relation share one key
    space.
    """

    into: PlainColumn
    source: str | None = None


class DeduplicateStep(KeyedStep):
    """Duplicate detection: the first row ever with a ``key`` is new, all later ones are duplicates.

    With ``drop``, duplicates are counted and end in the table of duplicates, if the pipeline has one. With ``flag``,
    they go on, marked in the boolean column ``into``.
    """

    mode: Literal["drop", "flag"] = "drop"
    into: PlainColumn = "is_duplicate"


class ChangesStep(KeyedStep):
    """Change detection: each batch is a whole snapshot of a source table, compared with the previous one.

    The column ``into`` classifies each row as ``inserted``, ``updated``, ``unchanged`` or, if the new snapshot lacks
    it, ``deleted``. Only rows of the kinds in ``emit`` go on.
    """

    into: PlainColumn = "change"
    emit: tuple[Literal["inserted", "updated", "unchanged", "deleted"], ...] = ("inserted", "updated", "deleted")


class StepSpec(SpecPart):
    """Step of a pipeline: exactly one of the fields is set, and holds the settings of that kind of step."""

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
            raise ValueError(
                f"a step must be exactly one of {known}; this one has {', '.join(sorted(given)) or 'none'}"
            )
        (name,) = given
        if getattr(self, name) is None:
            raise ValueError(f"the step {name} has no settings")
        return self

    @property
    def keyed(self) -> KeyedStep | None:
        """Settings of a keyed step; None for a join or compute step."""
        return self.surrogate_key or self.deduplicate or self.changes
