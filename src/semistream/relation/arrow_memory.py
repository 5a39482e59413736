"""Arrays for results, in memory that Arrow keeps for the next ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def new_array(rows: int, value_type: npt.DTypeLike, columns: int | None = None) -> npt.NDArray[Any]:
    """An array of ``rows`` values, or of ``columns`` such arrays, that is not filled.

    Results are made and dropped by the megabyte. Memory that the system hands out anew for each costs more, page by
    page, than to fill it; Arrow's pool gives the same memory again.
    """
    dtype = np.dtype(value_type)
    if rows == 0:
        return np.empty(0 if columns is None else (columns, 0), dtype)
    values = np.frombuffer(pa.allocate_buffer(rows * (columns or 1) * dtype.itemsize), dtype)
    return values if columns is None else values.reshape(columns, rows)
