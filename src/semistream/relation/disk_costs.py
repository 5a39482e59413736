"""What reading costs: seconds per seek, byte and page, as plans assume them and as requests have shown them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import astuple, dataclass, replace
from statistics import median

from semistream.errors import InvalidArgument

_KEPT = 32  # durations of each size: enough for a median that one slow request cannot move
_SAMPLED = 16  # when there are so many, one request in so many is timed
_LEAST = 8
_SPREAD = 4  # the larger requests must be so many times the smaller ones before a line is drawn through them


@dataclass(frozen=True)
class DiskCosts:
    """The time of one request: ``seek_s``, and so much for every byte and every page from its first to its last.

    SSIJ IV-D has S (``seek_s``) and one T per page. Pages of ours differ in size, so a real disk has a time per byte;
    the disks of the papers have one per page. Where all pages have one size, ``transfer_s_per_page`` is
    ``transfer_s_per_byte`` times that size, and it makes no difference which is given.

    >>> costs = DiskCosts(seek_s=0.008, transfer_s_per_page=0.0001)
    >>> costs.request_s(nbytes=8192 * 20, pages=20)
    0.01
    """

    seek_s: float
    transfer_s_per_byte: float = 0.0
    transfer_s_per_page: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(seconds) and seconds >= 0 for seconds in astuple(self)):
            raise InvalidArgument(f"{self} has a time that is negative or no number; give seconds from 0 on.")

    def request_s(self, nbytes: float, pages: float, requests: float = 1) -> float:
        """Seconds of ``requests`` that read ``nbytes`` in ``pages`` together: C(N) = S + T * N of SSIJ IV-D."""
        return requests * self.seek_s + nbytes * self.transfer_s_per_byte + pages * self.transfer_s_per_page

    def in_segments(self, segments: int) -> DiskCosts:
        """What reading pages costs that lie in so many places, each read by a request and counted as a page."""
        return replace(self, seek_s=self.seek_s * segments, transfer_s_per_page=self.transfer_s_per_page * segments)


class RequestTimes:
    """How long the last requests of each size took, and the costs that follow from it.

    Sizes are told apart by powers of two. Medians make it robust: a request that met a busy disk changes nothing.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, deque[tuple[int, float]]] = {}
        self._asked = 0

    def wants(self, nbytes: int) -> bool:
        """Whether a request of so many bytes should be timed: all until there are enough of its size, then some."""
        self._asked += 1
        return len(self._by_size.get(nbytes.bit_length(), ())) < _KEPT or self._asked % _SAMPLED == 0

    def add(self, nbytes: int, seconds: float) -> None:
        """Note one request that began with a seek."""
        self._by_size.setdefault(nbytes.bit_length(), deque(maxlen=_KEPT)).append((nbytes, seconds))

    def fit(self) -> DiskCosts | None:
        """The line through the smallest and the largest requests; None until there were enough of two sizes."""
        sizes = [list(requests) for requests in list(self._by_size.values())]  # a reader may add to them meanwhile
        points = sorted(
            (median(nbytes for nbytes, _ in requests), median(seconds for _, seconds in requests))
            for requests in sizes
            if len(requests) >= _LEAST
        )
        if not points or points[-1][0] < _SPREAD * max(points[0][0], 1):
            return None
        (few, few_s), (many, many_s) = points[0], points[-1]
        per_byte = max(0.0, (many_s - few_s) / (many - few))
        return DiskCosts(seek_s=max(0.0, few_s - few * per_byte), transfer_s_per_byte=per_byte)
