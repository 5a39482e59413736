"""JoinSpec: the terms of a join, resolved against R and checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypedDict, Unpack

import pyarrow as pa

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.workload import Workload
from semistream.errors import InvalidArgument
from semistream.joins.condition.condition import Condition, JoinOn, key_pairs
from semistream.joins.condition.kinds import JoinKind, join_kind
from semistream.joins.condition.where import Where
from semistream.keys.plain_types import given_back_schema, plain_schema
from semistream.relation import AnyRelation
from semistream.relation.format.page_layout import ColumnLayout, PageLayout
from semistream.relation.format.row_sizes import fixed_row_bytes

Columns = str | Sequence[str] | Mapping[str, str]
"""Columns of R in a result: one name, several, or a mapping from names to those they get in the result."""

GUESSED_BYTES = 32
"""Expected bytes of a string or nested value before real ones are seen."""


class JoinTerms(TypedDict, total=False):
    """Terms of a join as the user writes them; see `SemiStreamJoin`."""

    on: JoinOn | None
    where: Where | None
    how: str
    columns: Columns | None
    suffix: str


@dataclass(frozen=True)
class JoinSpec:
    """A resolved join of a stream with a relation, from which every operator and every cost model starts.

    ``condition`` decides which tuples match. ``payload`` lists the columns of R in the result. ``schema`` has all
    columns of the result: those of the stream, then, for inner and left joins, the payload. All of these have plain
    types; ``given_schema`` has the result in the types in which it leaves an operator, with the stream's own types.
    ``terms`` keeps the join as the user wrote it.
    """

    stream_schema: pa.Schema
    condition: Condition
    how: JoinKind
    payload: tuple[ColumnLayout, ...]
    schema: pa.Schema
    given_schema: pa.Schema
    terms: JoinTerms = field(default_factory=JoinTerms, repr=False, compare=False)

    @property
    def pairs(self) -> bool:
        """True if the results are pairs of a stream tuple and an R-tuple, not only stream tuples."""
        return self.how in ("inner", "left")

    @property
    def converts(self) -> bool:
        """True if streams and results have encodings or extension types, so that batches are converted."""
        return self.given_schema is not self.schema

    @property
    def relation_columns(self) -> list[str]:
        """Names of the columns of R that the join reads."""
        return sorted(self.condition.relation_columns.union(column.name for column in self.payload))

    @cached_property
    def row_bytes(self) -> int:
        """Fixed bytes of a stream row, without the contents of strings and nested values."""
        return fixed_row_bytes(self.stream_schema)

    @cached_property
    def expected_row_bytes(self) -> int:
        """Expected bytes of a stream row, including a guess for strings and nested values."""
        return expected_row_bytes(self.stream_schema)

    def with_stream(self, relation: AnyRelation, stream_schema: pa.Schema) -> JoinSpec:
        """Return the same join for a stream with these columns of plain types, and results in plain types."""
        if stream_schema is self.stream_schema:
            return self if self.given_schema is self.schema else replace(self, given_schema=self.schema)
        return JoinSpec.of(relation, stream_schema, **self.terms)

    def laid_out(self, layout: PageLayout) -> JoinSpec:
        """Return the same join for pages of another layout, which must have all columns of the join."""
        payload = tuple(layout.column(column.name) for column in self.payload)
        if payload == self.payload and self.condition.check is None:
            return self
        return replace(self, payload=payload, condition=self.condition.laid_out(layout))

    @classmethod
    def of(
        cls,
        relation: AnyRelation,
        stream_schema: pa.Schema,
        **terms: Unpack[JoinTerms],
    ) -> JoinSpec:
        """Resolve a join of a stream of any types against R.

        By default the result has all columns of R except those that ``on`` equates.
        """
        given, stream_schema = stream_schema, plain_schema(stream_schema)
        on, columns, how = terms.get("on"), terms.get("columns"), join_kind(terms.get("how", "inner"))
        suffix = terms.get("suffix", "_right")
        condition = Condition.of(relation, stream_schema, on=on, where=terms.get("where"), suffix=suffix)
        named, renamed = columns is not None, columns if isinstance(columns, Mapping) else {}
        names = relation.require_columns(list(columns) if isinstance(columns, Mapping) else columns)
        if how in ("semi", "anti"):
            if named:
                raise InvalidArgument(f"columns is not allowed with how={how!r}: the result has only stream columns.")
            names = []
        elif not named:
            equated = () if on is None else key_pairs(on).values()
            names = [name for name in names if name not in equated]
        fields = [relation.schema.field(name) for name in names]
        if how == "left":
            fields = [field.with_nullable(True) for field in fields]
        schema = given_schema = _result_schema(stream_schema, fields, suffix, renamed)
        if given is not stream_schema:
            given_schema = _result_schema(given_back_schema(given), fields, suffix, renamed)
        return cls(
            stream_schema=stream_schema,
            condition=condition,
            how=how,
            payload=tuple(relation.whole_layout.column(name) for name in names),
            schema=schema,
            given_schema=given_schema,
            terms=terms,
        )


def _require_names(renamed: Mapping[str, object]) -> None:
    for column, name in renamed.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"columns maps {column!r} to {name!r}, which is no name; give one.")


def _result_schema(
    stream_schema: pa.Schema, payload: list[pa.Field], suffix: str, renamed: Mapping[str, str]
) -> pa.Schema:
    _require_names(renamed)
    taken = set(stream_schema.names)
    fields = list(stream_schema)
    for column in payload:
        if column.name in renamed:
            name = renamed[column.name]
            if name in taken:
                owner = "the stream" if name in stream_schema.names else "another column of R"
                raise InvalidArgument(
                    f"columns maps {column.name!r} to {name!r}, a name that {owner} has already; give another."
                )
        else:
            name = column.name + suffix if column.name in taken else column.name
        if name in taken:
            raise InvalidArgument(f"the result would have two columns {name!r}; give another suffix or fewer columns.")
        taken.add(name)
        fields.append(column.with_name(name))
    return pa.schema(fields)


def expected_row_bytes(schema: pa.Schema) -> int:
    """Return the expected bytes of a stream row by its types, plus 8 for its size if sizes vary."""
    irregular = sum(1 for field in schema if field.type.num_buffers != 2 or field.type.num_fields)
    return fixed_row_bytes(schema) + irregular * GUESSED_BYTES + (8 if irregular else 0)


def join_workload(
    read: AnyRelation,
    spec: JoinSpec,
    frequencies: KeyFrequencies,
    *,
    results_per_tuple: float = 1.0,
    rate: float | None = None,
    batch_rows: float = math.inf,
) -> Workload:
    """Return the workload of an equality join on R's key; ``read`` is R narrowed to the columns of the join."""
    return Workload(
        frequencies,
        relation_rows=max(read.num_rows, 1),
        num_pages=read.num_pages,
        page_bytes=read.nbytes / read.num_pages,
        results_per_tuple=results_per_tuple,
        values_per_result=len(spec.payload),
        rate=rate,
        batch_rows=batch_rows,
    )
