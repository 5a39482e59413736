"""PairCheck: the conditions that codes cannot decide, checked on each candidate pair; Residual: an Arrow expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Int64s
from semistream.keys import KeyCodec
from semistream.keys.comparison import Comparison
from semistream.keys.row_expression import RowExpression
from semistream.relation import AnyRelation
from semistream.relation.format.page_layout import ColumnLayout, PageLayout
from semistream.relation.format.row_sizes import fixed_row_bytes, is_binary, is_regular


@dataclass(frozen=True, eq=False)  # expressions compare to expressions
class Residual:
    """A condition on pairs given as an Arrow expression over the joined row. Only the columns it reads are gathered.

    >>> row = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
    >>> Residual.of(pc.field("a") + 1 > pc.field("b"), row).names
    ('a', 'b')
    """

    bound: RowExpression

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> Residual:
        """Bind an expression to the columns of the joined row."""
        bound = RowExpression.of(expression, schema, what="where")
        if not pa.types.is_boolean(bound.type_):
            raise InvalidArgument(f"where is of type {bound.type_}, not boolean: {expression}.")
        return cls(bound)

    @property
    def columns(self) -> tuple[int, ...]:
        """Positions of the columns that the expression reads."""
        return self.bound.columns

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the expression reads."""
        return self.bound.names

    @property
    def always(self) -> bool:
        """The value of an expression that reads no column: True if all pairs fulfil it, False if none does."""
        (value,) = self.bound.values(pa.table({"": [0]})).to_pylist()
        return bool(value)

    def holds(self, arrays: list[pa.Array]) -> Bools:
        """Return a flag per row: True if the expression is true, not null. ``arrays`` are the values of ``columns``."""
        flags = self.bound.values(pa.Table.from_arrays(arrays, names=list(self.names)))
        known: Bools = flags.fill_null(False).to_numpy()
        return known


T = TypeVar("T")
Bytes = TypeVar("Bytes", int, Int64s)
_Arrays = list[pa.Array]
_Term = Callable[[_Arrays, _Arrays], Bools]


@dataclass(frozen=True, eq=False)
class PairCheck:
    """Conditions on pairs of a stream tuple and an R-tuple, all of which must hold.

    `holds` takes the values of ``stream_columns`` (positions in S) and of ``relation_columns``. ``left_bytes`` is the
    size of a stream tuple's values (None: it varies, up to the size of the tuple), ``right_bytes`` that of an R-tuple's
    (None: it varies). ``same_bytes`` is True if the only condition is that two string columns have the same bytes, and
    neither value is null.
    """

    stream_columns: tuple[int, ...]
    relation_columns: tuple[ColumnLayout, ...]
    left_bytes: int | None
    right_bytes: int | None
    terms: tuple[_Term, ...]
    same_bytes: bool = False

    def holds(self, left: list[pa.Array], right: list[pa.Array]) -> Bools:
        """Return a flag per pair: True if it meets all conditions."""
        return reduce(and_, (term(left, right) for term in self.terms))

    def laid_out(self, layout: PageLayout) -> PairCheck:
        """Return the same check for pages of another layout."""
        return replace(self, relation_columns=tuple(layout.column(column.name) for column in self.relation_columns))

    @staticmethod
    def pair_bytes(values: Bytes) -> Bytes:
        """Return the bytes needed to check a pair: its values, as much again to compare them, codes and flags."""
        return 2 * values + 64


class PairCheckBuilder:
    """Collects conditions and the columns they need."""

    def __init__(self, relation: AnyRelation, stream_schema: pa.Schema) -> None:
        self._relation = relation
        self._schema = stream_schema
        self._left: list[int] = []
        self._right: list[str] = []
        self._terms: list[_Term] = []
        self._same_bytes = False

    def require_equal_keys(self, codec: KeyCodec, stream: Sequence[str], relation: Sequence[str]) -> None:
        """Do as `require_equal` for the columns whose codes found the pairs, which therefore contain no nulls."""
        types = [*codec.types, *(self._schema.field(name).type for name in stream)]
        self._same_bytes = len(stream) == 1 and all(is_binary(type_) for type_ in types) and not codec.null_safe
        self.require_equal(codec, stream, relation)

    def require_equal(self, codec: KeyCodec, stream: Sequence[str], relation: Sequence[str]) -> None:
        """Require equal values in each pair of columns; ``codec`` encodes the relation's columns."""
        at = [self._stream_column(name) for name in stream]
        behind = [self._relation_column(name) for name in relation]
        self._terms.append(lambda left, right: codec.equal([left[i] for i in at], [right[i] for i in behind]))

    def require(self, comparison: Comparison, stream: str, relation: str) -> None:
        """Require that ``comparison`` holds between two columns."""
        at, behind = self._stream_column(stream), self._relation_column(relation)
        self._terms.append(lambda left, right: comparison.holds(left[at], right[behind]))

    def require_true(self, residual: Residual) -> None:
        """Require that an expression over the joined row is true."""
        if not residual.columns:
            if not residual.always:
                behind_any = self._relation_column(self._relation.schema.names[0])
                self._terms.append(lambda left, right: np.zeros(len(right[behind_any]), np.bool_))  # noqa: ARG005
            return
        width = len(self._schema)
        at = [_place(self._left, i) for i in residual.columns if i < width]
        behind = [self._relation_column(self._relation.schema.names[i - width]) for i in residual.columns if i >= width]
        self._terms.append(lambda left, right: residual.holds([left[i] for i in at] + [right[i] for i in behind]))

    def build(self) -> PairCheck | None:
        """Return the check; None if there are no conditions."""
        if not self._terms:
            return None
        fields = pa.schema([self._schema.field(i) for i in self._left])
        columns = tuple(self._relation.whole_layout.column(name) for name in self._right)
        fixed = all(column.kind in ("fixed", "bits") for column in columns)
        return PairCheck(
            stream_columns=tuple(self._left),
            relation_columns=columns,
            left_bytes=fixed_row_bytes(fields) if is_regular(fields) else None,
            right_bytes=sum(column.fixed_bytes for column in columns) if fixed else None,
            terms=tuple(self._terms),
            same_bytes=self._same_bytes and len(self._terms) == 1,
        )

    def _stream_column(self, name: str) -> int:
        return _place(self._left, self._schema.get_field_index(name))

    def _relation_column(self, name: str) -> int:
        return _place(self._right, name)


def _place(items: list[T], item: T) -> int:
    """Return the index of an item in a list, after appending it if it is missing."""
    if item not in items:
        items.append(item)
    return items.index(item)
