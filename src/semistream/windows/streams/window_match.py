"""WindowMatch: the join condition, as codes that find candidate pairs and a check of the candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument, KeyTypeError, require_pairs
from semistream.kernels.array_types import Bools, Int64s
from semistream.keys import KeyCodec
from semistream.keys.comparison import Comparison, within
from semistream.keys.key_types import SUPPORTED, Family, comparable, family_of, has_order
from semistream.keys.ranges import GREATEST, LEAST
from semistream.keys.row_expression import RowExpression
from semistream.keys.values import Mask
from semistream.windows.streams.band import Band, BandSide
from semistream.windows.streams.event_time import SIDES

JoinOn = str | Sequence[str] | Mapping[str, str]
Columns = Mapping[str, pa.Array]


def _nothing() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class RowCodes:
    """Codes of rows, and the location of their partners: cells of the other side, with codes from ``low`` to ``high``.

    ``possible`` marks rows that can match (None: all). If ``cell`` is empty, cells and bounds are the codes themselves.
    """

    code: Int64s
    possible: Mask | None
    cell: Int64s = field(default_factory=_nothing)
    first_cell: Int64s = field(default_factory=_nothing)
    last_cell: Int64s = field(default_factory=_nothing)
    low: Int64s = field(default_factory=_nothing)
    high: Int64s = field(default_factory=_nothing)


@dataclass(frozen=True, eq=False)
class WindowMatch:
    """Equality of columns (``codec``, over ``keys`` of each side), a band, a predicate, or several of these.

    Candidates are found by equality if given, else by the band; otherwise every pair is a candidate. `holds` checks
    the rest. ``schema`` is that of the joined row: the left stream's columns, then the right stream's without those
    equal by ``on``, with ``suffix`` appended to names already taken. ``right_names`` maps all right columns to their
    names in predicates.
    """

    keys: tuple[tuple[str, ...], tuple[str, ...]]
    codec: KeyCodec | None
    band: Band | None
    band_sides: tuple[BandSide, BandSide] | None
    band_check: Comparison | None
    where: RowExpression | None
    right_names: dict[str, str]
    right_columns: tuple[str, ...]
    row: pa.Schema
    schema: pa.Schema

    @classmethod
    def of(
        cls,
        left: pa.Schema,
        right: pa.Schema,
        *,
        on: JoinOn | None,
        band: Band | None,
        where: pc.Expression | None,
        suffix: str,
    ) -> WindowMatch:
        """Parse a condition given by the user."""
        if on is None and band is None and where is None:
            raise InvalidArgument("there is no on, no band and no where; give columns to compare, or a condition.")
        pairs = {} if on is None else on_pairs(on)
        for name, other in [*pairs.items(), *([(band.left, band.right)] if band else [])]:
            _require(name, left, SIDES[0])
            _require(other, right, SIDES[1])
        codec = _codec(pairs, left, right) if pairs else None
        sides = check = None
        if band is not None:
            types = left.field(band.left).type, right.field(band.right).type
            check = within(types[0], types[1], band.distance, is_duration=band.is_duration, strict=False)
            if codec is None and all(map(has_order, types)):
                sides = BandSide.pair(band, *types)
                check = None if check.ranges_are_exact else check
        names = {name: name + suffix if name in left.names else name for name in right.names}
        row = pa.schema([*left, *(column.with_name(names[column.name]) for column in right)])
        if len(set(row.names)) < len(row):
            raise InvalidArgument(
                f"the joined row has duplicate column names: {row.names}. Rename them, or give a suffix."
            )
        predicate = None if where is None else RowExpression.of(where, row, what="where")
        if predicate is not None and not pa.types.is_boolean(predicate.type_):
            raise InvalidArgument(f"where is of type {predicate.type_}, not boolean: {where}.")
        if predicate is not None and not predicate.names:
            raise InvalidArgument(f"where reads no column: {where}. A condition of constants joins all or nothing.")
        given = tuple(name for name in right.names if name not in pairs.values())
        return cls(
            keys=(tuple(pairs), tuple(pairs.values())),
            codec=codec,
            band=band,
            band_sides=sides,
            band_check=check,
            where=predicate,
            right_names=names,
            right_columns=given,
            row=row,
            schema=pa.schema([*left, *(right.field(name).with_name(names[name]) for name in given)]),
        )

    def given_out(self, left: pa.Schema, right: pa.Schema, results: pa.Schema) -> pa.Schema:
        """Return the schema of ``results`` with the columns of both streams in the types of the given schemas."""
        types = [*left.types, *(right.field(name).type for name in self.right_columns)]
        own = [field.with_type(type_) for field, type_ in zip(results, types, strict=False)]
        return pa.schema([*own, *list(results)[len(types) :]])

    def codes(self, side: int, batch: pa.RecordBatch) -> RowCodes:
        """Return the codes of a batch of one side, and the bounds of its partners' codes."""
        if self.codec is not None:
            return RowCodes(*self.codec.encode([batch.column(name) for name in self.keys[side]]))
        rows = batch.num_rows
        if self.band_sides is None:
            zero = np.zeros(rows, np.int64)
            return RowCodes(zero, None, zero, zero, zero, np.full(rows, LEAST), np.full(rows, GREATEST))
        own = self.band_sides[side]
        code, possible = own.codes(batch.column(own.column))
        near = own.ranges(batch.column(own.column))
        if near.possible is not None:
            possible = near.possible if possible is None else possible & near.possible
        low, high = np.ascontiguousarray(near.low), np.ascontiguousarray(near.last)
        return RowCodes(code, possible, own.cells(code), own.other_cells(low), own.other_cells(high), low, high)

    def cells(self, side: int, codes: Int64s) -> Int64s:
        """Return the cells of codes of one side; empty if cells are the codes."""
        if self.codec is not None:
            return _nothing()
        return np.zeros_like(codes) if self.band_sides is None else self.band_sides[side].cells(codes)

    @property
    def checked(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns of each side that `holds` needs; empty if all candidates join."""
        left: dict[str, None] = {}
        right: dict[str, None] = {}
        if self.codec is not None and not self.codec.ordered:
            left.update(dict.fromkeys(self.keys[0]))
            right.update(dict.fromkeys(self.keys[1]))
        if self.band_check is not None and self.band is not None:
            left[self.band.left] = right[self.band.right] = None
        if self.where is not None:
            own = {out: name for name, out in self.right_names.items()}
            for name in self.where.names:
                (right if name in own else left)[own.get(name, name)] = None
        return tuple(left), tuple(right)

    @property
    def must_check(self) -> bool:
        """True if some candidates may not join."""
        hashed = self.codec is not None and not self.codec.ordered
        return hashed or self.band_check is not None or self.where is not None

    def holds(self, left: Columns, right: Columns, rows: int) -> Bools:
        """Return a mask of the candidates that join."""
        joins = np.ones(rows, np.bool_)
        if self.codec is not None and not self.codec.ordered:
            joins &= self.codec.equal([left[n] for n in self.keys[0]], [right[n] for n in self.keys[1]])
        if self.band_check is not None and self.band is not None:
            joins &= self.band_check.holds(left[self.band.left], right[self.band.right])
        if self.where is not None:
            own = {out: name for name, out in self.right_names.items()}
            columns = {name: right[own[name]] if name in own else left[name] for name in self.where.names}
            joins &= self.where.values(pa.table(columns)).fill_null(False).to_numpy()
        return joins


def on_pairs(on: JoinOn) -> dict[str, str]:
    """Return a mapping of left columns to the right columns that they must equal."""
    pairs = require_pairs("on", on)
    if not pairs or len(set(pairs.values())) < len(pairs):
        raise InvalidArgument(f"on is {on!r}; give at least one pair of columns, and no column twice.")
    return pairs


def _require(name: str, schema: pa.Schema, side: str) -> None:
    if name not in schema.names:
        raise ColumnNotFound(name, schema.names, where=f"the {side} stream")


def _codec(pairs: Mapping[str, str], left: pa.Schema, right: pa.Schema) -> KeyCodec:
    types = [(left.field(name).type, right.field(other).type) for name, other in pairs.items()]
    for (name, other), (own, theirs) in zip(pairs.items(), types, strict=True):
        for side, column, type_ in ((SIDES[0], name, own), (SIDES[1], other, theirs)):
            if family_of(type_) in (None, Family.NESTED):
                raise KeyTypeError(
                    f"key {column!r} of the {side} stream has type {type_}, which cannot be a join key. "
                    f"Keys can be {SUPPORTED}."
                )
        if not comparable(own, theirs):
            raise KeyTypeError(
                f"key {name!r} of the left stream is {own} but key {other!r} of the right stream is {theirs}; "
                "they cannot be compared without loss. Cast one side to the type of the other."
            )
    return KeyCodec.of(list(pairs.values()), [theirs for _, theirs in types])
