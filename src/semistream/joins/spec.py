"""JoinSpec: what is to be joined with what, and what comes out, resolved and checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.relation import Relation
from semistream.relation.page_layout import ColumnLayout

JoinKind = Literal["inner", "left", "semi", "anti"]
JoinOn = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class JoinSpec:
    """An equality join of a stream with a relation.

    ``stream_keys`` are the stream's columns in the order of the relation's key. ``payload`` are the relation's columns
    that come out, ``schema`` the result's columns: the stream's, then (inner and left) the payload.
    """

    stream_schema: pa.Schema
    stream_keys: tuple[str, ...]
    how: JoinKind
    payload: tuple[ColumnLayout, ...]
    key_columns: tuple[ColumnLayout, ...]
    schema: pa.Schema

    @property
    def pairs(self) -> bool:
        """Whether pairs of a stream tuple and an R-tuple come out, and not only stream tuples."""
        return self.how in ("inner", "left")

    @classmethod
    def of(
        cls,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        on: JoinOn,
        how: str = "inner",
        columns: Sequence[str] | None = None,
        suffix: str = "_right",
    ) -> JoinSpec:
        """Resolve a join as a user writes it; ``columns`` are those of the relation to give out, all but its key."""
        if how not in get_args(JoinKind):
            raise InvalidArgument(f"how is {how!r}; give one of {', '.join(get_args(JoinKind))}.")
        pairs = _by_relation_column(key_pairs(on))
        stream_keys = _stream_keys(pairs, relation, stream_schema)
        relation.codec.accept(stream_keys, [stream_schema.field(name).type for name in stream_keys])
        named = columns is not None
        names = relation.require_columns(columns)
        if how in ("semi", "anti"):
            if named:
                raise InvalidArgument(f"columns does not go with how={how!r}: only the stream's columns come out.")
            names = []
        elif not named:
            names = [name for name in names if name not in relation.key]
        fields = [relation.schema.field(name) for name in names]
        if how == "left":
            fields = [field.with_nullable(True) for field in fields]
        return cls(
            stream_schema=stream_schema,
            stream_keys=stream_keys,
            how=how,  # type: ignore[arg-type]
            payload=tuple(relation.layout.column(name) for name in names),
            key_columns=tuple(relation.layout.column(name) for name in relation.key),
            schema=_result_schema(stream_schema, fields, suffix),
        )


def key_pairs(on: JoinOn) -> dict[str, str]:
    """The pairs (stream column -> relation column) that ``on`` means."""
    if isinstance(on, str):
        return {on: on}
    return dict(on) if isinstance(on, Mapping) else {name: name for name in on}


def _by_relation_column(pairs: dict[str, str]) -> dict[str, str]:
    turned = {relation: stream for stream, relation in pairs.items()}
    if len(turned) < len(pairs):
        raise InvalidArgument(f"on pairs a relation column twice: {pairs}.")
    return turned


def _stream_keys(pairs: dict[str, str], relation: Relation, stream_schema: pa.Schema) -> tuple[str, ...]:
    for name in pairs:
        if name not in relation.schema.names:
            raise ColumnNotFound(name, relation.schema.names, where=f"relation {relation.path}")
    if set(pairs) != set(relation.key):
        raise InvalidArgument(
            f"on names the relation's columns ({', '.join(pairs)}), but relation {relation.path} is clustered by "
            f"({', '.join(relation.key)}). Join on these, or build a relation with the key you want to join on."
        )
    for name in pairs.values():
        if stream_schema.names.count(name) != 1:
            if name in stream_schema.names:
                raise InvalidArgument(f"the stream has several columns called {name!r}; rename them.")
            raise ColumnNotFound(name, stream_schema.names, where="the stream")
    return tuple(pairs[name] for name in relation.key)


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
