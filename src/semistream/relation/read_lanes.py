"""ReadLanes: some lanes that read one run after the other, each run together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semistream.relation.disk import ALIGNMENT
from semistream.relation.read_lane import Read, ReadLane

_LANES = 2
_LEAST_PART_BYTES = 512 << 10  # a run of less than one such part for each lane is not cut


class LaneReads(NamedTuple):
    """Some ``reads`` that lanes do: each lane those at some places among them, or parts of these."""

    parts: list[tuple[ReadLane, list[int]]]
    reads: int

    def wait(self) -> list[int]:
        """Wait until all is read; gives the bytes of each read."""
        got = [0] * self.reads
        for lane, places in self.parts:
            for place, nbytes in zip(places, lane.wait(len(places)), strict=True):
                got[place] += nbytes
        return got


class ReadLanes:
    """Reads runs in the background, in the order in which they are asked for; up to ``depth`` before the first must be
    waited for.

    If each lane read a run of its own, the disk would serve all of them alike, so that they would be ready at about the
    same time: then it would have nothing to do while the first of them is joined. So all lanes read the same run, of
    which each has a part.
    """

    most_reads = ReadLane.most_reads
    supported = ReadLane.supported

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._lanes: list[ReadLane] = []  # as many as were needed so far

    def start(self, reads: Sequence[Read]) -> LaneReads:
        """Begin with the reads of a run when those of all runs before are done. Wait for runs in the same order."""
        parts, shares = [], _shared_out(reads)
        while len(self._lanes) < len(shares):
            self._lanes.append(ReadLane(self._depth))
        for lane, share in zip(self._lanes, shares, strict=False):
            lane.start([read for _, read in share])
            parts.append((lane, [place for place, _ in share]))
        return LaneReads(parts, len(reads))

    def close(self) -> None:
        """End the threads, when they have read what they read now."""
        while self._lanes:
            self._lanes.pop().close()


def _shared_out(reads: Sequence[Read]) -> list[list[tuple[int, Read]]]:
    """The reads of each lane, with their places among all: of several, every other; of a long one, a part."""
    if len(reads) > 1:
        placed = list(enumerate(reads))
        return [placed[lane::_LANES] for lane in range(min(_LANES, len(reads)))]
    ((descriptor, address, nbytes, offset),) = reads
    if nbytes < _LANES * _LEAST_PART_BYTES:
        return [[(0, reads[0])]]
    part = -(-nbytes // (_LANES * ALIGNMENT)) * ALIGNMENT
    begins = range(0, nbytes, part)
    return [[(0, (descriptor, address + begin, min(part, nbytes - begin), offset + begin))] for begin in begins]
