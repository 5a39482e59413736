"""Tuples of two streams as the kernels of a window join take them."""

from typing import NamedTuple

from semistream.kernels.types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.window_memory import Floats


class WindowRows(NamedTuple):
    """Tuples in the order of (time, side, position). Arrays that are empty: all can match; cells and bounds are the
    codes; the sketch finds the classes; weights are 1; costs are 1; there is no queue.

    ``number`` counts the tuples of a side from 0. A tuple is stored in ``cell``, and its partners are in the cells of
    the other side from ``first_cell`` to ``last_cell``, with codes from ``low`` to ``high``. ``queued`` marks those
    that wait in a queue.
    """

    side: Bytes
    time: Int64s
    number: Int64s
    code: Int64s
    possible: Bools
    cell: Int64s
    first_cell: Int64s
    last_cell: Int64s
    low: Int64s
    high: Int64s
    class_: Int32s
    weight: Floats
    cost: Int32s
    queued: Bools
