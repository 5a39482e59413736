"""Condition: which R-tuples a stream tuple joins, as a range of key codes and a check of the pairs found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.joins.condition.pair_check import PairCheck, PairCheckBuilder, Residual
from semistream.joins.condition.run_codes import ClusteredCodes, ComputedCodes, RunCodes
from semistream.joins.condition.where import Compared, Near, Term, Where, read_terms, where_parts
from semistream.keys import CodeRanges, KeyCodec
from semistream.keys.comparison import Comparison, Ordered, compared, within
from semistream.relation import AnyRelation, PageRun
from semistream.relation.format.page_layout import PageLayout

Access = Literal["equality", "range", "scan"]
JoinOn = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Condition:
    """For each stream tuple an inclusive range of codes, and a check of the pairs that it finds (None: all belong).

    ``access`` says what the codes are. ``"equality"``: R's key codes, one for each tuple, since all of R's key is
    equated. ``"range"``: R's key codes, ordered, from ``low`` to ``high``. ``"scan"``: R's clustering is of no use;
    the codes are those of other columns, computed from each run of pages, or if none is equated there is nothing to
    compare and the ranges are all codes. In a scan R's rows with a null key can match too.

    ``codec`` makes the codes of equated columns (None: none is equated by code), of which ``stream_keys`` are the
    stream's. ``bounds`` are the comparisons with R's key whose ranges are intersected, with the stream's columns.
    """

    access: Access
    text: str
    codec: KeyCodec | None
    stream_keys: tuple[str, ...]
    bounds: tuple[tuple[str, Comparison], ...]
    check: PairCheck | None

    @classmethod
    def of(
        cls,
        relation: AnyRelation,
        stream_schema: pa.Schema,
        *,
        on: JoinOn | None = None,
        where: Where | None = None,
        suffix: str = "_right",
    ) -> Condition:
        """Read a condition as a user writes it, and choose how R's rows are found by it.

        A range of R's key codes that is open on one side is taken only if no column is equated: half of R for every
        tuple is worse than the codes of other columns.
        """
        terms, expressions = _read(on, where)
        for term in terms:
            _require_columns(term, relation, stream_schema)
        equal = _Equalities.among(terms)
        comparisons = _comparisons(terms, relation, stream_schema)
        access, keys, bounds = _choose(relation, equal, comparisons)
        codec = _codec(relation, keys) if keys else None
        stream_keys = tuple(equal.first[name] for name in keys)
        check = PairCheckBuilder(relation, stream_schema)
        if codec is not None:
            codec.accept(stream_keys, [stream_schema.field(name).type for name in stream_keys])
            if not codec.ordered:
                check.require_equal_keys(codec, stream_keys, keys)
        for stream, name in equal.others(keys):
            single = _codec(relation, (name,))
            single.accept([stream], [stream_schema.field(stream).type])
            check.require_equal(single, [stream], [name])
        for term, comparison in comparisons:
            if term not in bounds or not comparison.ranges_are_exact:
                check.require(comparison, term.stream, term.relation)
        row = _joined_row(relation, stream_schema, suffix)
        for expression in expressions:
            check.require_true(Residual.of(expression, row))
        return cls(
            access=access,
            text=" AND ".join(map(str, [*terms, *expressions])),
            codec=codec,
            stream_keys=stream_keys,
            bounds=tuple((term.stream, comparison) for term, comparison in comparisons if term in bounds),
            check=check.build(),
        )

    @property
    def single_codes(self) -> bool:
        """Whether each tuple asks for one code, so that ``high`` is None in all `ranges`."""
        return self.codec is not None

    @property
    def computes_codes(self) -> bool:
        """Whether the codes of R's rows are computed run by run, and not those R is clustered by."""
        return self.access == "scan" and self.codec is not None

    def ranges(self, batch: pa.RecordBatch) -> CodeRanges:
        """For each tuple the codes of the R-tuples it can match."""
        if self.codec is not None:
            codes, possible = self.codec.encode([batch.column(name) for name in self.stream_keys])
            return CodeRanges(codes, None, possible)
        if not self.bounds:
            return CodeRanges.everything(batch.num_rows)
        parts = (comparison.ranges(batch.column(name)) for name, comparison in self.bounds)
        return reduce(CodeRanges.intersect, parts)

    def codes_of(self, run: PageRun) -> RunCodes:
        """The codes of a run's rows: those that `ranges` speaks of."""
        if self.computes_codes:
            assert self.codec is not None
            return ComputedCodes.of(run, self.codec)
        return ClusteredCodes(run)

    @property
    def relation_columns(self) -> set[str]:
        """The columns of R that are looked at."""
        checked = {column.name for column in self.check.relation_columns} if self.check else set()
        return checked.union(self.codec.names if self.codec else ())

    def laid_out(self, layout: PageLayout) -> Condition:
        """The same condition for pages of another layout."""
        return self if self.check is None else replace(self, check=self.check.laid_out(layout))

    def require_equality(self, operator: str, relation: AnyRelation) -> None:
        """Refuse a condition that is not equality with R's key, for an operator that finds one code for each tuple.

        If R is not clustered, equality with any of its columns will do.
        """
        if self.access == "equality" or (self.computes_codes and not relation.clustered):
            return
        equated = "the relation's whole key" if relation.clustered else "columns of the relation"
        raise InvalidArgument(
            f"operator {operator!r} joins on equality with {equated}, but the condition is {self.text}. Use MeshJoin "
            "(operator='mesh'), which takes any condition."
        )

    def require_index(self, operator: str, relation: AnyRelation) -> None:
        """Refuse a condition that R's clustered key does not help with, for an operator that looks tuples up by it."""
        if self.access == "scan":
            raise InvalidArgument(
                f"operator {operator!r} finds rows by the relation's key, but {self.text} does not pin down the key of "
                f"{relation.path}, which is clustered by ({', '.join(relation.key)}). Use MeshJoin (operator='mesh'), "
                "which needs no key, or build a relation with the key you want to join on."
            )


def key_pairs(on: JoinOn) -> dict[str, str]:
    """The pairs (stream column -> relation column) that ``on`` means."""
    if isinstance(on, str):
        return {on: on}
    return dict(on) if isinstance(on, Mapping) else {name: name for name in on}


@dataclass(frozen=True)
class _Equalities:
    """Pairs of columns that must be equal: of each relation column the ``first`` stream column, and ``all`` pairs."""

    first: dict[str, str]
    all: list[tuple[str, str]]

    @classmethod
    def among(cls, terms: Sequence[Term]) -> _Equalities:
        pairs = [(t.stream, t.relation) for t in terms if isinstance(t, Compared) and t.operator == "="]
        first: dict[str, str] = {}
        for stream, relation in pairs:
            first.setdefault(relation, stream)
        return cls(first, pairs)

    def others(self, keys: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs that codes of ``keys`` do not cover."""
        return [(s, r) for s, r in self.all if r not in keys or self.first[r] != s]


def _read(on: JoinOn | None, where: Where | None) -> tuple[list[Term], list[pc.Expression]]:
    pairs = {} if on is None else key_pairs(on)
    if len(set(pairs.values())) < len(pairs):
        raise InvalidArgument(f"on pairs a relation column twice: {pairs}.")
    parts = where_parts(where)
    if not pairs and not parts:
        raise InvalidArgument("there is neither on nor where; give columns that are equal, a condition, or both.")
    terms: list[Term] = [Compared(stream, "=", relation) for stream, relation in pairs.items()]
    for part in parts:
        if isinstance(part, str):
            terms.extend(read_terms(part))
    return list(dict.fromkeys(terms)), [part for part in parts if not isinstance(part, str)]


def _require_columns(term: Term, relation: AnyRelation, stream_schema: pa.Schema) -> None:
    if term.relation not in relation.schema.names:
        raise ColumnNotFound(term.relation, relation.schema.names, where=f"relation {relation.path}")
    if term.stream not in stream_schema.names:
        raise ColumnNotFound(term.stream, stream_schema.names, where="the stream")
    if stream_schema.names.count(term.stream) != 1:
        raise InvalidArgument(f"the stream has several columns called {term.stream!r}; rename them.")


def _comparisons(
    terms: Sequence[Term], relation: AnyRelation, stream_schema: pa.Schema
) -> list[tuple[Term, Comparison]]:
    """All but the equalities."""
    made: list[tuple[Term, Comparison]] = []
    for term in terms:
        types = stream_schema.field(term.stream).type, relation.schema.field(term.relation).type
        if isinstance(term, Near):
            near = within(*types, term.distance, is_duration=term.is_duration, strict=term.strict)
            made.append((term, near))
        elif term.operator != "=":
            made.append((term, compared(*types, term.operator)))
    return made


def _choose(
    relation: AnyRelation, equal: _Equalities, comparisons: Sequence[tuple[Term, Comparison]]
) -> tuple[Access, tuple[str, ...], list[Term]]:
    """How R's rows are found, the relation's columns that are equated by code, and the terms that give ranges."""
    if relation.key and all(name in equal.first for name in relation.key):
        return "equality", relation.key, []
    on_key = [(t, c) for t, c in comparisons if (t.relation,) == relation.key and c.has_ranges]
    sides = {c.order[0] if isinstance(c, Ordered) else "<>" for _, c in on_key}
    if on_key and (not equal.first or len(sides) > 1 or "<>" in sides):
        return "range", (), [term for term, _ in on_key]
    return "scan", tuple(equal.first), []


def _codec(relation: AnyRelation, names: tuple[str, ...]) -> KeyCodec:
    return KeyCodec.of(names, [relation.schema.field(name).type for name in names])


def _joined_row(relation: AnyRelation, stream_schema: pa.Schema, suffix: str) -> pa.Schema:
    """The columns that an expression can name: S's, then all of R's."""
    taken = set(stream_schema.names)
    fields = [field.with_name(field.name + suffix if field.name in taken else field.name) for field in relation.schema]
    return pa.schema([*stream_schema, *fields])
