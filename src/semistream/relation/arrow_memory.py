"""Arrays for results, in memory that Arrow keeps for the next ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def new_array(rows: int, value_type: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of ``rows`` values that is not filled.

    Results are made and dropped by the megabyte. Memory that the system hands out anew for each costs more, page by
    page, than to fill it; Arrow's pool gives the same memory again.
    """
    dtype = np.dtype(value_type)
    return np.frombuffer(pa.allocate_buffer(rows * dtype.itemsize), dtype) if rows else np.empty(0, dtype)


def packed_bits(flags: npt.NDArray[Any]) -> pa.Buffer:
    """Flags of a byte each as Arrow has them: a validity bitmap, or booleans."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
