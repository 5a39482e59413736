"""RowPacking: the packed layout of waiting stream tuples, and their sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.joins.condition.spec import JoinSpec, expected_row_bytes
from semistream.joins.sweep.byte_ring import aligned
from semistream.joins.sweep.levels import NARROW
from semistream.joins.sweep.packing import PackedBinary, PackedColumn, PackedStrings, PackedValues, is_packable
from semistream.keys import CodeRanges
from semistream.relation import Relation
from semistream.relation.format.row_sizes import fixed_row_bytes, is_binary

_HASH_SHIFT = 32  # low bits of a hash that are not stored, as pairs are checked anyway


@dataclass(frozen=True)
class PackedRows:
    """A batch ready to be stored: its codes, and its columns in the narrowest widths that hold their values.

    ``row_bytes`` is the mean row size, and ``padding`` the bytes of a level besides its rows. If rows differ in size,
    ``ends`` has the cumulative bytes up to the end of each row.
    """

    codes: PackedValues
    values: dict[int, list[PackedValues]]
    nulls: dict[int, pa.Array]
    strings: list[PackedStrings]
    padding: int
    row_bytes: int
    ends: np.ndarray | None

    def fitting(self, rows: int, nbytes: int) -> int:
        """Return the number of leading rows that fit in ``nbytes``."""
        if self.ends is None:
            return max(min(rows, nbytes // self.row_bytes), 0)
        return int(np.searchsorted(self.ends, nbytes, "right"))


class RowPacking:
    """The layout of one join's waiting stream tuples.

    If the stream column ``code_column`` equals the key code, code and column are stored once. The lowest
    ``code_shift`` bits of a hash are dropped: 4 of its 8 bytes distinguish nearly all keys, and pairs are checked
    anyway. With ``single_codes`` each tuple asks for one code, otherwise for a range. Columns other than fixed-width
    values and strings cannot be packed (``unpacked``); they stay in an Arrow batch.
    """

    def __init__(
        self, schema: pa.Schema, code_column: int | None = None, *, single_codes: bool = True, code_shift: int = 0
    ) -> None:
        self.schema = schema
        self.code_column = code_column
        self.single_codes = single_codes
        self.code_shift = code_shift
        self.integers = {i: PackedColumn(t) for i, t in enumerate(schema.types) if is_packable(t)}
        self.binary = {i: PackedBinary(t) for i, t in enumerate(schema.types) if is_binary(t)}
        self.columns: dict[int, PackedColumn | PackedBinary] = {**self.integers, **self.binary}
        self.unpacked = [i for i in range(len(schema)) if i not in self.columns]
        unpacked = pa.schema([schema.field(i) for i in self.unpacked])
        self.unpacked_row_bytes = expected_row_bytes(unpacked)
        self.most_row_bytes = self.index_bytes(1) + fixed_row_bytes(schema) - fixed_row_bytes(unpacked)

    @classmethod
    def of(cls, relation: Relation, spec: JoinSpec) -> RowPacking:
        """Return the packing for a join with ``relation``."""
        condition, codec, schema = spec.condition, relation.codec, spec.stream_schema
        single = condition.single_codes
        shift = _HASH_SHIFT if single and not codec.ordered else 0
        column = None
        if condition.access == "equality" and codec.in_place_code:
            found = schema.get_field_index(condition.stream_keys[0])
            column = found if schema.types[found] == codec.types[0] else None
        return cls(schema, column, single_codes=single, code_shift=shift)

    def index_bytes(self, rows: int) -> int:
        """Return the bytes of the codes, range ends and flags of ``rows`` at full width."""
        code_bytes = 0 if self.code_column is not None else NARROW if self.code_shift >= 32 else 8
        return rows * (code_bytes + 1 + (0 if self.single_codes else 16))

    def pack(self, batch: pa.RecordBatch, ranges: CodeRanges) -> PackedRows:
        """Choose the narrowest widths for the rows of a batch, without copying them."""
        values = {
            i: [PackedValues.of(part) for part in column.integers(batch.column(i))]
            for i, column in self.integers.items()
            if i != self.code_column
        }
        codes = self._codes(ranges)
        nulls = {i: batch.column(i).is_valid() for i in self.columns if batch.column(i).null_count}
        widths = [codes.width, 1, *(part.width for parts in values.values() for part in parts)]
        widths += [1] * len(nulls) + ([] if self.single_codes else [8, 8])
        strings = [PackedStrings.of(batch.column(i)) for i in self.binary]
        padding = aligned(1) * (len(widths) + 2 * len(strings)) + sum(some.prefix for some in strings)
        return PackedRows(codes, values, nulls, strings, padding, *_row_bytes(batch.num_rows, sum(widths), strings))

    def _codes(self, ranges: CodeRanges) -> PackedValues:
        """Return the codes that tuples ask for, or the first code of each range."""
        if not self.single_codes:
            return PackedValues(ranges.low, 8)
        codes = ranges.low >> self.code_shift if self.code_shift else ranges.low
        possible = codes if ranges.possible is None else codes[ranges.possible]
        return PackedValues.of(possible, widths=(NARROW, 8))._replace(values=codes)


def _row_bytes(rows: int, width: int, strings: Sequence[PackedStrings]) -> tuple[int, np.ndarray | None]:
    """Return the mean bytes of a row, and the cumulative end of each row if they differ in size."""
    width += sum(some.row_bytes for some in strings)
    varying = [some for some in strings if some.varying]
    if not varying or not rows:
        return width, None
    ends = np.arange(1, rows + 1) * width
    for some in varying:
        ends += some.own_ends
    return -(-int(ends[-1]) // rows), ends
