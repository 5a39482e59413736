"""Layout of a page: its columns, their buffers, and the buffer that holds the key codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from semistream.kernels.array_types import Int64s
from semistream.keys import KeyCodec
from semistream.relation.format import kernels

CODE_COLUMN = "_key_code"


@dataclass(frozen=True)
class ColumnLayout:
    """One column of a page: its first buffer (the validity bitmap) and the way its values are copied.

    ``kind`` is ``"fixed"`` (``width`` bytes per value), ``"bits"``, ``"binary"`` (``width`` bytes per offset), or
    ``"arrow"`` for types that only Arrow can decode, such as nested ones.
    """

    name: str
    type: pa.DataType
    first_buffer: int
    kind: str
    width: int

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the fixed part of a value, counting its validity bit (and the bit of a boolean) as a byte."""
        return self.width + (2 if self.kind == "bits" else 1)


@dataclass(frozen=True)
class SegmentLayout:
    """The part of a page in one column group: a record batch with the page's buffers from ``first_buffer`` on."""

    schema: pa.Schema
    first_buffer: int
    num_buffers: int

    @cached_property
    def buffers(self) -> tuple[Int64s, Int64s]:
        """Kind of each buffer, as `first_unsound` checks it, and the bytes of its values."""
        shapes = [shape for field in self.schema for shape in _buffer_shapes(field.type)]
        kinds, widths = zip(*shapes, strict=True) if shapes else ((), ())
        return np.array(kinds, np.int64), np.array(widths, np.int64)

    @cached_property
    def flat_nodes(self) -> Int64s:
        """For each node of a page's message, 1 if it is a column and 0 if it is a child of one."""
        return np.array([own for field in self.schema for own in _nodes(field.type)], np.int64)

    @cached_property
    def has_children(self) -> bool:
        """True if a column is nested, so that only Arrow can check all of it."""
        return not self.flat_nodes.all()


@dataclass(frozen=True)
class PageLayout:
    """The columns of R's pages. Codes are the key column itself if its buffer holds codes, otherwise a separate column.

    Columns and buffers are numbered consecutively across segments; the codes are in the first segment, in
    ``code_column``: the key itself, or a column added to R's.
    """

    columns: tuple[ColumnLayout, ...]
    segments: tuple[SegmentLayout, ...]
    num_buffers: int
    code_column: str
    code_buffer: int

    @classmethod
    def of(
        cls, user_schema: pa.Schema, key: tuple[str, ...], codec: KeyCodec, groups: Sequence[Sequence[str]] = ()
    ) -> PageLayout:
        """Lay out all columns of a relation, or those of its column ``groups``, with the key's group first."""
        schemas = [pa.schema([user_schema.field(name) for name in group]) for group in groups] or [user_schema]
        if codec.in_place_code:
            return cls._laid_out(schemas, key[0])
        name = _free_name(user_schema)
        return cls._laid_out([_with_code_field(schemas[0], name), *schemas[1:]], name)

    @classmethod
    def with_codes(cls, user_schema: pa.Schema) -> PageLayout:
        """Lay out rows with a column of codes before their own columns."""
        name = _free_name(user_schema)
        return cls._laid_out([_with_code_field(user_schema, name)], name)

    @classmethod
    def _laid_out(cls, schemas: Sequence[pa.Schema], code_column: str) -> PageLayout:
        columns: list[ColumnLayout] = []
        segments: list[SegmentLayout] = []
        buffer = 0
        for schema in schemas:
            first = buffer
            for field in schema:
                kind, width = _copy_kind(field.type)
                columns.append(ColumnLayout(field.name, field.type, buffer, kind, width))
                buffer += _count_buffers(field.type)
            segments.append(SegmentLayout(schema, first, buffer - first))
        code = next(column for column in columns if column.name == code_column)
        return cls(tuple(columns), tuple(segments), buffer, code_column, code.first_buffer + 1)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of all columns, in storage order."""
        if len(self.segments) == 1:
            return self.segments[0].schema
        return pa.schema([field for segment in self.segments for field in segment.schema])

    @property
    def in_one_segment(self) -> PageLayout:
        """The same columns and buffer numbers, for pages stored as one record batch."""
        return replace(self, segments=(SegmentLayout(self.schema, 0, self.num_buffers),))

    def stored(self, rows: pa.RecordBatch, codes: Int64s) -> pa.RecordBatch:
        """Return rows of R in the columns of this layout, including their codes if these are a separate column."""
        if rows.schema.names == self.schema.names:
            return rows
        coded = pa.array(np.ascontiguousarray(codes))
        own = set(rows.schema.names)
        columns = [rows.column(name) if name in own else coded for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def column(self, name: str) -> ColumnLayout:
        """Return the layout of a column by name."""
        return next(column for column in self.columns if column.name == name)


def _free_name(user_schema: pa.Schema) -> str:
    """Return the name of the column of codes: the usual one, or that with underscores if R has such a column."""
    name = CODE_COLUMN
    while name in user_schema.names:
        name = f"_{name}"
    return name


def _with_code_field(schema: pa.Schema, name: str) -> pa.Schema:
    return schema.insert(0, pa.field(name, pa.int64(), nullable=False))


def _copy_kind(type_: pa.DataType) -> tuple[str, int]:
    if pa.types.is_boolean(type_):
        return "bits", 0
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return "binary", 4
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return "binary", 8
    if not pa.types.is_nested(type_) and not pa.types.is_null(type_) and type_.num_buffers == 2:
        return "fixed", type_.bit_width // 8
    return "arrow", 0


def _buffer_shapes(type_: pa.DataType) -> list[tuple[int, int]]:
    """Return the kind and the value width of each buffer of a column."""
    kind, width = _copy_kind(type_)
    if kind == "arrow":
        return [(kernels.UNCHECKED, 0)] * _count_buffers(type_)
    if kind == "binary":
        return [(kernels.BITMAP, 0), (kernels.OFFSETS, width), (kernels.BYTES, 0)]
    return [(kernels.BITMAP, 0), (kernels.BITS, 0) if kind == "bits" else (kernels.FIXED, width)]


def _nodes(type_: pa.DataType) -> list[int]:
    """Return a 1 for a column, followed by a 0 for each of its descendants."""
    children = [type_.field(i).type for i in range(type_.num_fields)]
    return [1, *(0 for child in children for _ in _nodes(child))]


def _count_buffers(type_: pa.DataType) -> int:
    """Count the buffers of a column in an IPC message: those of the type itself and of its children."""
    if pa.types.is_null(type_):
        return 0
    own = int(type_.num_buffers)
    if pa.types.is_union(type_):
        own -= 1  # unions have no validity bitmap in a message
    return own + sum(_count_buffers(type_.field(i).type) for i in range(type_.num_fields))
