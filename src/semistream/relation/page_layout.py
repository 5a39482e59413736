"""What a page looks like: its columns, their buffers, and which of them holds the key codes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.keys import KeyCodec

CODE_COLUMN = "_key_code"


@dataclass(frozen=True)
class ColumnLayout:
    """One column of a page: its first buffer (the validity bitmap) and how its values are copied.

    ``kind`` is ``"fixed"`` (``width`` bytes a value), ``"bits"``, ``"binary"`` (``width`` bytes an offset), or
    ``"arrow"`` for types that only Arrow takes apart: nested ones.
    """

    name: str
    type: pa.DataType
    first_buffer: int
    kind: str
    width: int

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a value apart from what varies, with its bit of validity (and of a boolean) as a byte."""
        return self.width + (2 if self.kind == "bits" else 1)


@dataclass(frozen=True)
class PageLayout:
    """The columns of R's pages. Codes are the key column itself where it is one already, else a column of their own."""

    schema: pa.Schema
    columns: tuple[ColumnLayout, ...]
    num_buffers: int
    code_buffer: int

    @classmethod
    def of(cls, user_schema: pa.Schema, key: tuple[str, ...], codec: KeyCodec) -> PageLayout:
        """The layout of a relation with these columns."""
        if CODE_COLUMN in user_schema.names:
            raise InvalidArgument(f"column {CODE_COLUMN!r} has a name that semistream keeps for itself; rename it.")
        if not codec.in_place_code:
            return cls.with_codes(user_schema)
        return cls._laid_out(user_schema, key[0])

    @classmethod
    def with_codes(cls, user_schema: pa.Schema) -> PageLayout:
        """The layout of rows with a column of codes before their own."""
        return cls._laid_out(user_schema.insert(0, pa.field(CODE_COLUMN, pa.int64(), nullable=False)), CODE_COLUMN)

    @classmethod
    def _laid_out(cls, schema: pa.Schema, code_column: str) -> PageLayout:
        columns, buffer = [], 0
        for field in schema:
            kind, width = _copy_kind(field.type)
            columns.append(ColumnLayout(field.name, field.type, buffer, kind, width))
            buffer += _count_buffers(field.type)
        code = next(column for column in columns if column.name == code_column)
        return cls(schema, tuple(columns), buffer, code.first_buffer + 1)

    def column(self, name: str) -> ColumnLayout:
        """The layout of a column by name."""
        return next(column for column in self.columns if column.name == name)


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


def _count_buffers(type_: pa.DataType) -> int:
    """Buffers a column has in an IPC message: those of the type itself, then those of its children."""
    if pa.types.is_null(type_):
        return 0
    own = int(type_.num_buffers)
    if pa.types.is_union(type_):
        own -= 1  # unions have no validity bitmap in a message
    return own + sum(_count_buffers(type_.field(i).type) for i in range(type_.num_fields))
