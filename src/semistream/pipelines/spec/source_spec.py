"""Sources of a pipeline's rows: files in a folder, a Kafka topic, or the built-in generator."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from semistream.pipelines.spec.column_types import column_type
from semistream.pipelines.spec.part import LocalPath, SpecPart, as_value_error
from semistream.pipelines.spec.row_rules import RowRule

RESERVED = "__"
"""Prefix of the names of a pipeline's internal columns."""


class RuleSpec(SpecPart):
    """Rule for the values of a column: not null, from ``min`` to ``max``, or among ``one_of``."""

    column: str
    not_null: bool = False
    min: Any = None
    max: Any = None
    one_of: tuple[Any, ...] | None = Field(default=None, min_length=1)

    @property
    def rule(self) -> RowRule:
        """Rule that checks rows."""
        return RowRule(self.column, self.not_null, self.min, self.max, self.one_of)


class TypedSource(SpecPart):
    """Source with typed columns, and rules that its rows must meet."""

    columns: dict[str, str] = Field(alias="schema", min_length=1)
    rules: tuple[RuleSpec, ...] = ()
    options: dict[str, str] = Field(default_factory=dict)

    @field_validator("columns")
    @classmethod
    def _known_types(cls, columns: dict[str, str]) -> dict[str, str]:
        for name, type_ in columns.items():
            if name.startswith(RESERVED):
                raise ValueError(
                    f"{name!r}: names that begin with {RESERVED!r} are reserved for the pipeline; rename the column"
                )
            as_value_error(column_type, type_)
        return columns

    @model_validator(mode="after")
    def _rules_fit(self) -> TypedSource:
        for each in self.rules:
            as_value_error(lambda rule=each: rule.rule.require_fits(self.arrow_schema))
        return self

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of a row in Arrow types."""
        return pa.schema([(name, column_type(type_)) for name, type_ in self.columns.items()])


class FileSource(TypedSource):
    """Files that appear in a folder, each complete and written once.

    ``on_schema_change`` applies to a file that lacks a column or has one of another type: its rows go to the
    quarantine, or the pipeline stops. Extra columns are ignored and reported.

    ``snapshots`` is for change detection: each file is a whole snapshot, or each folder as soon as it holds a file
    ``_SUCCESS``, in the order of their names. A snapshot with other columns always stops the pipeline.
    """

    format: Literal["parquet", "json", "csv"]
    path: LocalPath
    files_per_batch: int = Field(default=64, ge=1, le=1_000_000)
    snapshots: Literal["files", "folders"] = "files"
    on_schema_change: Literal["quarantine", "stop"] = "quarantine"


class KafkaSource(TypedSource):
    """Kafka topic whose message values are rows in JSON or CSV."""

    format: Literal["kafka"]
    servers: str
    topic: str
    value: Literal["json", "csv"] = "json"
    starting: Literal["earliest", "latest"] = "earliest"
    rows_per_batch: int = Field(default=500_000, ge=1, le=1_000_000_000)


class GeneratorSource(TypedSource):
    """Generated rows at ``rate`` rows a second: ``key`` follows Zipf's law over ``keys`` keys, ``seq`` is the position.

    The same ``seed`` gives the same rows. With ``rows``, the source ends after that many.
    """

    format: Literal["generator"]
    columns: dict[str, str] = Field(alias="schema", default={"key": "bigint", "seq": "bigint"})
    keys: int = Field(ge=1, le=1 << 62)
    exponent: float = Field(default=1.0, ge=0, le=10)
    rate: int = Field(default=100_000, ge=1, le=1_000_000_000)
    rows: int | None = Field(default=None, ge=1, lt=1 << 62)
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @field_validator("columns")
    @classmethod
    def _its_columns(cls, columns: dict[str, str]) -> dict[str, str]:
        if columns != {"key": "bigint", "seq": "bigint"}:
            raise ValueError("generated rows have the columns key and seq, both bigint; leave `schema` out")
        return columns


SourceSpec = Annotated[FileSource | KafkaSource | GeneratorSource, Field(discriminator="format")]
