"""JoinSpec: what is to be joined with what, and what comes out, resolved and checked once.

A join as the cost models see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import pyarrow as pa

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.workload import Workload
from semistream.errors import InvalidArgument
from semistream.joins.condition.condition import Condition, JoinOn, key_pairs
from semistream.joins.condition.where import Where
from semistream.relation import AnyRelation
from semistream.relation.format.page_layout import ColumnLayout, PageLayout

JoinKind = Literal["inner", "left", "semi", "anti"]


@dataclass(frozen=True)
class JoinSpec:
    """A join of a stream with a relation.

    ``condition`` says which tuples are joined. ``payload`` are the relation's columns that come out, ``schema`` the
    result's columns: the stream's, then (inner and left) the payload.
    """

    stream_schema: pa.Schema
    condition: Condition
    how: JoinKind
    payload: tuple[ColumnLayout, ...]
    schema: pa.Schema

    @property
    def pairs(self) -> bool:
        """Whether pairs of a stream tuple and an R-tuple come out, and not only stream tuples."""
        return self.how in ("inner", "left")

    @property
    def relation_columns(self) -> list[str]:
        """The columns of R that the join needs."""
        return sorted(self.condition.relation_columns.union(column.name for column in self.payload))

    def laid_out(self, layout: PageLayout) -> JoinSpec:
        """The same join with pages of another layout, which has all columns that it needs."""
        payload = tuple(layout.column(column.name) for column in self.payload)
        return replace(self, payload=payload, condition=self.condition.laid_out(layout))

    @classmethod
    def of(
        cls,
        relation: AnyRelation,
        stream_schema: pa.Schema,
        *,
        on: JoinOn | None = None,
        where: Where | None = None,
        how: str = "inner",
        columns: Sequence[str] | None = None,
        suffix: str = "_right",
    ) -> JoinSpec:
        """Resolve a join as a user writes it; ``columns`` of the relation come out, by default all that ``on`` does not
        equate with a stream's.
        """
        if how not in get_args(JoinKind):
            raise InvalidArgument(f"how is {how!r}; give one of {', '.join(get_args(JoinKind))}.")
        condition = Condition.of(relation, stream_schema, on=on, where=where, suffix=suffix)
        named = columns is not None
        names = relation.require_columns(columns)
        if how in ("semi", "anti"):
            if named:
                raise InvalidArgument(f"columns does not go with how={how!r}: only the stream's columns come out.")
            names = []
        elif not named:
            equated = () if on is None else key_pairs(on).values()
            names = [name for name in names if name not in equated]
        fields = [relation.schema.field(name) for name in names]
        if how == "left":
            fields = [field.with_nullable(True) for field in fields]
        return cls(
            stream_schema=stream_schema,
            condition=condition,
            how=how,  # type: ignore[arg-type]
            payload=tuple(relation.whole_layout.column(name) for name in names),
            schema=_result_schema(stream_schema, fields, suffix),
        )


def _result_schema(stream_schema: pa.Schema, payload: list[pa.Field], suffix: str) -> pa.Schema:
    taken = set(stream_schema.names)
    fields = list(stream_schema)
    for field in payload:
        name = field.name + suffix if field.name in taken else field.name
        if name in taken:
            raise InvalidArgument(f"column {name!r} would come out twice; give another suffix or fewer columns.")
        taken.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields)


def join_workload(
    read: AnyRelation,
    spec: JoinSpec,
    frequencies: KeyFrequencies,
    *,
    results_per_tuple: float = 1.0,
    rate: float | None = None,
    batch_rows: float = math.inf,
) -> Workload:
    """The workload of a join on equality with R's key; ``read`` is R with the columns that it reads."""
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
