"""RowFlags: a growing array with one flag for each row of a task."""

from __future__ import annotations

import numpy as np

from semistream.kernels.array_types import Bools, Int64s


class RowFlags:
    """Flags by row number, all unset at first.

    >>> flags = RowFlags()
    >>> flags.set(np.array([0, 3]))
    >>> flags.upto(5).tolist()
    [True, False, False, True, False]
    """

    def __init__(self) -> None:
        self._flags = np.zeros(0, np.bool_)

    @property
    def untouched(self) -> bool:
        """True if no flag was ever set or read."""
        return not self._flags.size

    def set(self, numbers: Int64s) -> None:
        """Set the flags of these rows."""
        self._grow(int(numbers.max(initial=-1)) + 1)
        self._flags[numbers] = True

    def are_set(self, numbers: Int64s) -> Bools:
        """Return the flags of these rows."""
        self._grow(int(numbers.max(initial=-1)) + 1)
        return self._flags[numbers]

    def upto(self, rows: int) -> Bools:
        """Return the flags of the first ``rows`` rows."""
        self._grow(rows)
        return self._flags[:rows]

    def _grow(self, rows: int) -> None:
        if rows > self._flags.size:
            more = np.zeros(max(rows, 2 * self._flags.size) - self._flags.size, np.bool_)
            self._flags = np.concatenate([self._flags, more])
