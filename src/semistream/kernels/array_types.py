"""Aliases for the array types in kernel signatures."""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
