"""Columns of stream tuples in arrays by slot: rows are put in by the batch and copied out in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.types import Bools, Int64s
from semistream.relation.arrow_memory import new_array

_VALUE_TYPES: dict[int, type[np.generic]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


def is_stored(type_: pa.DataType) -> bool:
    """Whether values of a type have a width that an array of slots can be made of."""
    if isinstance(type_, pa.BaseExtensionType) or pa.types.is_nested(type_) or pa.types.is_dictionary(type_):
        return False
    return pa.types.is_boolean(type_) or (
        not pa.types.is_null(type_) and type_.num_buffers == 2 and type_.bit_width // 8 in _VALUE_TYPES
    )


class StoredColumn:
    """One column of fixed width, for a number of slots. ``values`` may be an array that is kept anyway: the codes."""

    def __init__(self, type_: pa.DataType, slots: int, values: npt.NDArray[Any] | None = None) -> None:
        self._type = type_
        self._bits = pa.types.is_boolean(type_)
        self._shared = values is not None
        width = 1 if self._bits else type_.bit_width // 8
        value_type: type[np.generic] = _VALUE_TYPES[width]
        self._values: npt.NDArray[Any] = np.empty(slots, value_type) if values is None else values.view(value_type)
        self._valid: Bools | None = None

    def put(self, begin: int, column: pa.Array, order: npt.NDArray[Any]) -> None:
        """Store the rows ``order`` of a column in the slots from ``begin`` on."""
        end = begin + order.size
        if not self._shared:
            np.take(self._view(column), order, out=self._values[begin:end], mode="clip")
        if column.null_count:
            if self._valid is None:
                self._valid = np.ones(self._values.size, np.bool_)
            self._valid[begin:end] = column.is_valid().to_numpy(zero_copy_only=False)[order]
        elif self._valid is not None:
            self._valid[begin:end] = True

    def _view(self, column: pa.Array) -> npt.NDArray[Any]:
        if self._bits:
            flags: npt.NDArray[Any] = column.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
            return flags
        return np.frombuffer(
            column.buffers()[1], self._values.dtype, len(column), column.offset * self._values.itemsize
        )

    def take(self, slots: Int64s) -> pa.Array:
        """Copies of the values in some slots."""
        values = new_array(slots.size, self._values.dtype)
        self._values.take(slots, out=values, mode="clip")
        validity = None
        if self._valid is not None:
            valid = self._valid.take(slots)
            if not valid.all():
                validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        data = np.packbits(values.view(np.bool_), bitorder="little") if self._bits else values
        return pa.Array.from_buffers(self._type, slots.size, [validity, pa.py_buffer(data)])
