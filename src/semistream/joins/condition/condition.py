"""Condition: the join condition as a range of codes for each stream tuple, and a check of the pairs found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument, require_pairs
from semistream.joins.condition.pair_check import PairCheck, PairCheckBuilder, Residual
from semistream.joins.condition.run_codes import ClusteredCodes, ComputedCodes, RunCodes
from semistream.joins.condition.where import Compared, Near, Term, Where, read_terms, where_parts
from semistream.keys import CodeRanges, KeyCodec
from semistream.keys.comparison import Comparison, Ordered, compared, within
from semistream.relation import AnyRelation, PageRun
from semistream.relation.format.page_layout import PageLayout

Access = Literal["equality", "range", "scan"]
JoinOn = str | Sequence[str] | Mapping[str, str]


_CONSTANTS = {"true": True, "false": False}


@dataclass(frozen=True, eq=False)
class Condition:
    """An inclusive range of codes for each stream tuple, and a ``check`` of the pairs found in it (None: all match).

    ``access`` tells which codes these are:

    - ``"equality"``: R's key codes, one per tuple, because the condition equates R's whole key.
    - ``"range"``: R's key codes, which are ordered, from ``low`` to ``high``.
    - ``"scan"``: R's clustering does not help. The codes are those of the equated columns, computed for each run of
      pages. Without an equality, every range covers all codes. R's rows with a null key can match too.

    ``codec`` encodes the equated columns (None: none is equated by code), and ``stream_keys`` are these columns in the
    stream. ``bounds`` lists (stream column, comparison with R's key); their ranges are intersected.
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
        """Parse a condition as the user writes it, and choose the access to R's rows.

        A range of R's key codes open on one side is used only if no column is equated: reading half of R for every
        tuple is worse than computing the codes of other columns.
        """
        terms, expressions = _read(on, where)
        for term in terms:
            _require_columns(term, relation, stream_schema)
        equal = _Equalities.among(terms)
        comparisons = _comparisons(terms, relation, stream_schema)
        access, keys, bounds = _choose(relation, equal, comparisons)
        codec = _codec(relation, keys, [name in equal.null_safe for name in keys]) if keys else None
        stream_keys = tuple(equal.first[name] for name in keys)
        check = PairCheckBuilder(relation, stream_schema)
        if codec is not None:
            codec.accept(stream_keys, [stream_schema.field(name).type for name in stream_keys])
            if not codec.ordered:
                check.require_equal_keys(codec, stream_keys, keys)
        for stream, name, null_safe in equal.others(keys):
            single = _codec(relation, (name,), [null_safe])
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
        """True if each tuple looks for one code, so that ``high`` is None in all `ranges`."""
        return self.codec is not None

    @property
    def computes_codes(self) -> bool:
        """True if the codes of R's rows are computed for each run, instead of taken from R's clustering."""
        return self.access == "scan" and self.codec is not None

    def ranges(self, batch: pa.RecordBatch) -> CodeRanges:
        """Return, for each tuple, the range of codes of the R-tuples it can match."""
        if self.codec is not None:
            codes, possible = self.codec.encode([batch.column(name) for name in self.stream_keys])
            return CodeRanges(codes, None, possible)
        if not self.bounds:
            return CodeRanges.everything(batch.num_rows)
        parts = (comparison.ranges(batch.column(name)) for name, comparison in self.bounds)
        return reduce(CodeRanges.intersect, parts)

    def codes_of(self, run: PageRun) -> RunCodes:
        """Return the codes of a run's rows, comparable with `ranges`."""
        if self.computes_codes:
            assert self.codec is not None
            return ComputedCodes.of(run, self.codec)
        return ClusteredCodes(run)

    @property
    def relation_columns(self) -> set[str]:
        """Names of the columns of R that the condition reads."""
        checked = {column.name for column in self.check.relation_columns} if self.check else set()
        return checked.union(self.codec.names if self.codec else ())

    def laid_out(self, layout: PageLayout) -> Condition:
        """Return the same condition for pages of another layout."""
        return self if self.check is None else replace(self, check=self.check.laid_out(layout))

    def require_equality(self, operator: str, relation: AnyRelation) -> None:
        """Raise `InvalidArgument` unless the condition equates R's whole key, or any columns if R is not clustered.

        For operators that look for one code per tuple.
        """
        if self.access == "equality" or (self.computes_codes and not relation.clustered):
            return
        equated = "the relation's whole key" if relation.clustered else "columns of the relation"
        raise InvalidArgument(
            f"operator {operator!r} joins on equality with {equated}, but the condition is {self.text}. Use MeshJoin "
            "(operator='mesh'), which takes any condition."
        )

    def require_index(self, operator: str, relation: AnyRelation) -> None:
        """Raise `InvalidArgument` if the condition does not restrict R's key, for operators that find rows by it."""
        if self.access == "scan":
            raise InvalidArgument(
                f"operator {operator!r} finds rows by the relation's key, but {self.text} does not restrict the key of "
                f"{relation.path}, which is clustered by ({', '.join(relation.key)}). Use MeshJoin (operator='mesh'), "
                "which needs no key, or build a relation with the key you want to join on."
            )


def key_pairs(on: JoinOn) -> dict[str, str]:
    """Return ``on`` as a mapping from stream columns to relation columns."""
    return require_pairs("on", on)


def compared_columns(on: JoinOn | None, where: Where | None) -> list[tuple[str, str]]:
    """Return the pairs of a stream column and a relation column that ``on`` and the text of ``where`` compare."""
    return [(term.stream, term.relation) for term in _read(on, where)[0]]


@dataclass(frozen=True)
class _Equalities:
    """Pairs of equated columns: the ``first`` stream column of each relation column, and ``all`` pairs.

    A relation column is in ``null_safe`` if only ``<=>`` equates it; each pair tells if it is such a one.
    """

    first: dict[str, str]
    null_safe: set[str]
    all: list[tuple[str, str, bool]]

    @classmethod
    def among(cls, terms: Sequence[Term]) -> _Equalities:
        equal = [term for term in terms if isinstance(term, Compared) and term.operator in ("=", "<=>")]
        pairs = [(term.stream, term.relation, term.operator == "<=>") for term in equal]
        first: dict[str, str] = {}
        for stream, relation, _ in sorted(pairs, key=lambda pair: pair[2]):
            first.setdefault(relation, stream)
        return cls(first, first.keys() - {relation for _, relation, null_safe in pairs if not null_safe}, pairs)

    def others(self, keys: Sequence[str]) -> list[tuple[str, str, bool]]:
        """Return the pairs that codes of ``keys`` do not cover."""
        return [
            (s, r, null_safe)
            for s, r, null_safe in self.all
            if r not in keys or self.first[r] != s or null_safe != (r in self.null_safe)
        ]


def _read(on: JoinOn | None, where: Where | None) -> tuple[list[Term], list[pc.Expression]]:
    pairs = {} if on is None else key_pairs(on)
    if len(set(pairs.values())) < len(pairs):
        raise InvalidArgument(f"on pairs a relation column twice: {pairs}.")
    parts = where_parts(where)
    if not pairs and not parts:
        raise InvalidArgument("there is neither on nor where; give equal columns (on), a condition (where), or both.")
    terms: list[Term] = [Compared(stream, "=", relation) for stream, relation in pairs.items()]
    expressions: list[pc.Expression] = []
    for part in parts:
        if not isinstance(part, str):
            expressions.append(part)
        elif part.strip().lower() in _CONSTANTS:
            expressions.append(pc.scalar(_CONSTANTS[part.strip().lower()]))
        else:
            terms.extend(read_terms(part))
    return list(dict.fromkeys(terms)), expressions


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
    """Return the terms other than equalities, each with its comparison."""
    made: list[tuple[Term, Comparison]] = []
    for term in terms:
        types = stream_schema.field(term.stream).type, relation.schema.field(term.relation).type
        if isinstance(term, Near):
            near = within(*types, term.distance, is_duration=term.is_duration, strict=term.strict)
            made.append((term, near))
        elif term.operator != "=" and term.operator != "<=>":  # noqa: PLR1714 - so that types are narrowed
            made.append((term, compared(*types, term.operator)))
    return made


def _choose(
    relation: AnyRelation, equal: _Equalities, comparisons: Sequence[tuple[Term, Comparison]]
) -> tuple[Access, tuple[str, ...], list[Term]]:
    """Choose the access to R's rows, the relation columns to equate by code, and the terms that give ranges."""
    if relation.key and all(name in equal.first and name not in equal.null_safe for name in relation.key):
        return "equality", relation.key, []
    on_key = [(t, c) for t, c in comparisons if (t.relation,) == relation.key and c.has_ranges]
    sides = {c.order[0] if isinstance(c, Ordered) else "<>" for _, c in on_key}
    if on_key and (not equal.first or len(sides) > 1 or "<>" in sides):
        return "range", (), [term for term, _ in on_key]
    return "scan", tuple(equal.first), []


def _codec(relation: AnyRelation, names: tuple[str, ...], null_safe: Sequence[bool]) -> KeyCodec:
    return KeyCodec.of(names, [relation.schema.field(name).type for name in names], null_safe)


def _joined_row(relation: AnyRelation, stream_schema: pa.Schema, suffix: str) -> pa.Schema:
    """Return the columns that an expression can name: those of S, then all of R."""
    taken = set(stream_schema.names)
    fields = [field.with_name(field.name + suffix if field.name in taken else field.name) for field in relation.schema]
    return pa.schema([*stream_schema, *fields])
