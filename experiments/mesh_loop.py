"""Loop of MESHJOIN as shedding sees it: of every ``c_loop`` stream tuples, ``w`` are joined."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.shedding import StreamPart, TopW


def top_w_loss(matches: npt.NDArray[np.int64], *, w: int, c_loop: int, seed: int = 0) -> int:
    """Return the results lost by TOPW, which keeps the best ``w`` of each ``c_loop`` arriving tuples (MESH 4.2).

    The last interval may be shorter; the tuples it keeps are joined after the end of the stream.
    """
    lost = 0
    for number, begin in enumerate(range(0, matches.size, c_loop)):
        arrived = matches[begin : begin + c_loop]
        kept = TopW().shed(StreamPart(arrived.size, matches=arrived), w, seed=seed + number)
        lost += int(arrived[~kept.mask].sum())
    return lost
