"""The loop of MESHJOIN as shedding sees it: every ``c_loop`` tuples of the stream, ``w`` of them are joined."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.shedding import StreamPart, TopW


def top_w_loss(matches: npt.NDArray[np.int64], *, w: int, c_loop: int, seed: int = 0) -> int:
    """The results that TOPW loses: of each ``c_loop`` tuples that come, it keeps the best ``w`` (MESH 4.2).

    The last interval may be a shorter one; what it has kept is joined after the stream has ended.
    """
    lost = 0
    for number, begin in enumerate(range(0, matches.size, c_loop)):
        arrived = matches[begin : begin + c_loop]
        kept = TopW().shed(StreamPart(arrived.size, matches=arrived), w, seed=seed + number)
        lost += int(arrived[~kept.mask].sum())
    return lost
