"""What reading costs: seconds per seek, byte and page, as plans assume them and as requests have shown them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from statistics import median

from semistream.errors import InvalidArgument

_KEPT = 32  # durations of each size: enough for a median that one slow request cannot move
_SAMPLED = 16  # when there are so many, one request in so many is timed
_LEAST = 8
_SINGULAR = 1e-12  # share of its greatest value below which a determinant is that of requests of one size
_SPREAD = 4  # the larger requests must be so many times the smaller ones before a line is drawn through them


@dataclass(frozen=True)
class DiskCosts:
    """The time of one request: ``seek_s``, and so much for every byte and every page from its first to its last.

    SSIJ IV-D has S (``seek_s``) and one T per page. Pages of ours differ in size, so a real disk has a time per byte;
    the disks of the papers have one per page. Where all pages have one size, ``transfer_s_per_page`` is
    ``transfer_s_per_byte`` times that size, and it makes no difference which is given.

    Of a seek, ``follows`` is the share that a request takes which goes on where the one before ended: all of it if the
    disk has no head, nothing if it has one, which is there already.

    >>> costs = DiskCosts(seek_s=0.008, transfer_s_per_page=0.0001)
    >>> costs.request_s(nbytes=8192 * 20, pages=20)
    0.01
    """

    seek_s: float
    transfer_s_per_byte: float = 0.0
    transfer_s_per_page: float = 0.0
    follows: float = 1.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(seconds) and seconds >= 0 for seconds in astuple(self)):
            raise InvalidArgument(f"{self} has a time that is negative or no number; give seconds from 0 on.")
        if self.follows > 1:
            raise InvalidArgument(f"follows is {self.follows}; give a share of a seek, from 0 to 1.")

    @classmethod
    def fitted(cls, times: Iterable[tuple[float, float]]) -> DiskCosts:
        """The costs that come nearest to requests of so many bytes that took so many seconds.

        What is least is the sum of squares of relative errors, as a request of 8 KiB is to be told as well as one of 4
        MiB, among costs that are not negative. Requests that took no time tell nothing.

        >>> DiskCosts.fitted([(0, 1.0), (1000, 2.0), (3000, 4.0)])
        DiskCosts(seek_s=1.0, transfer_s_per_byte=0.001, transfer_s_per_page=0.0, follows=1.0)
        """
        points = [(nbytes, seconds) for nbytes, seconds in times if seconds > 0]
        if not points:
            return cls(seek_s=0.0)
        # With weights 1 / y^2 the errors 1 - (s + t n) / y are the residuals of ones by the columns 1 / y and n / y.
        ones, bytes_ = [1 / y for _, y in points], [n / y for n, y in points]
        s_s, s_t, t_t = _dot(ones, ones), _dot(ones, bytes_), _dot(bytes_, bytes_)
        seek_only, transfer_only = (sum(ones) / s_s, 0.0), (0.0, sum(bytes_) / t_t if t_t else 0.0)
        candidates = [seek_only, transfer_only]
        determinant = s_s * t_t - s_t * s_t
        if determinant > _SINGULAR * s_s * t_t:
            seek_s = (sum(ones) * t_t - sum(bytes_) * s_t) / determinant
            candidates.append((seek_s, (s_s * sum(bytes_) - s_t * sum(ones)) / determinant))

        def error(costs: tuple[float, float]) -> float:
            return sum((costs[0] * a + costs[1] * b - 1) ** 2 for a, b in zip(ones, bytes_, strict=True))

        return cls(*min((costs for costs in candidates if min(costs) >= 0), key=error))

    def request_s(self, nbytes: float, pages: float, requests: float = 1) -> float:
        """Seconds of ``requests`` that read ``nbytes`` in ``pages`` together: C(N) = S + T * N of SSIJ IV-D."""
        return requests * self.seek_s + nbytes * self.transfer_s_per_byte + pages * self.transfer_s_per_page

    def transfer_s(self, nbytes: float) -> float:
        """Seconds for the bytes of a request alone."""
        return nbytes * self.transfer_s_per_byte

    def in_segments(self, segments: int) -> DiskCosts:
        """What reading pages costs that lie in so many places, each read by a request and counted as a page.

        A head goes from one of them to the next, so that no request goes on where the one before ended.
        """
        return replace(
            self,
            seek_s=self.seek_s * segments,
            transfer_s_per_page=self.transfer_s_per_page * segments,
            follows=self.follows if segments == 1 else 1.0,
        )


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
        """The line through the medians of all sizes; None until there were enough of two sizes that are far apart."""
        sizes = [list(requests) for requests in list(self._by_size.values())]  # a reader may add to them meanwhile
        points = sorted(
            (median(nbytes for nbytes, _ in requests), median(seconds for _, seconds in requests))
            for requests in sizes
            if len(requests) >= _LEAST
        )
        if not points or points[-1][0] < _SPREAD * max(points[0][0], 1):
            return None
        return DiskCosts.fitted(points)


def _dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
