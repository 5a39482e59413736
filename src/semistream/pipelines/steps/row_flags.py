"""RowFlags: a flag for each of the rows of a task, however many come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class RowFlags:
    """Flags by the number of a row, none of which is set at first.

    >>> flags = RowFlags()
    >>> flags.set(np.array([0, 3]))
    >>> flags.upto(5).tolist()
    [True, False, False, True, False]
    """

    def __init__(self) -> None:
        self._flags = np.zeros(0, np.bool_)

    @property
    def untouched(self) -> bool:
        """Whether no flag was ever set or asked for."""
        return not self._flags.size

    def set(self, numbers: Numbers) -> None:
        """Set those of some rows."""
        self._grow(int(numbers.max(initial=-1)) + 1)
        self._flags[numbers] = True

    def are_set(self, numbers: Numbers) -> Bools:
        """Whether those of some rows are set."""
        self._grow(int(numbers.max(initial=-1)) + 1)
        return self._flags[numbers]

    def upto(self, rows: int) -> Bools:
        """Those of the first so many rows."""
        self._grow(rows)
        return self._flags[:rows]

    def _grow(self, rows: int) -> None:
        if rows > self._flags.size:
            more = np.zeros(max(rows, 2 * self._flags.size) - self._flags.size, np.bool_)
            self._flags = np.concatenate([self._flags, more])
