"""Costs of reading: seconds per seek, byte and page, as read plans assume them or fitted to measured requests."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from semistream.errors import InvalidArgument

_SINGULAR = 1e-12  # a determinant below this share of its maximum means requests of only one size


@dataclass(frozen=True)
class DiskCosts:
    """Cost model of one request: ``seek_s``, plus a time for every byte and page from its first page to its last.

    SSIJ IV-D has S (``seek_s``) and one T per page. Our pages differ in size, so a real disk has a time per byte; the
    disks of the papers have a time per page. If all pages have the same size, ``transfer_s_per_page`` equals
    ``transfer_s_per_byte`` times that size, and either may be given.

    ``follows`` is the share of a seek that a request costs if it starts where the previous one ended: 1 for a disk
    without a head, 0 for a disk with a head, which is already in place.

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
            raise InvalidArgument(f"{self} has a time that is negative or not finite; give 0 or more seconds.")
        if self.follows > 1:
            raise InvalidArgument(f"follows is {self.follows}; give a share of a seek, from 0 to 1.")

    @classmethod
    def fitted(cls, times: Iterable[tuple[float, float]]) -> DiskCosts:
        """Fit costs to the (bytes, seconds) of requests.

        The fit minimises the sum of squared relative errors, so that requests of 8 KiB and of 4 MiB fit equally well,
        under the constraint that costs are not negative. Requests of zero duration are ignored.

        >>> DiskCosts.fitted([(0, 1.0), (1000, 2.0), (3000, 4.0)])
        DiskCosts(seek_s=1.0, transfer_s_per_byte=0.001, transfer_s_per_page=0.0, follows=1.0)
        """
        points = [(nbytes, seconds) for nbytes, seconds in times if seconds > 0]
        if not points:
            return cls(seek_s=0.0)
        # The relative errors 1 - (s + t n) / y are the residuals of regressing 1 on the columns 1 / y and n / y.
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
        """Return the seconds of ``requests`` that together read ``nbytes`` in ``pages``.

        This is C(N) = S + T * N of SSIJ IV-D.
        """
        return requests * self.seek_s + nbytes * self.transfer_s_per_byte + pages * self.transfer_s_per_page

    def transfer_s(self, nbytes: float) -> float:
        """Return the seconds to transfer ``nbytes``, without seeks and costs per page."""
        return nbytes * self.transfer_s_per_byte

    def in_segments(self, segments: int) -> DiskCosts:
        """Return the costs of reading pages of ``segments`` segments, each read by a request and counted as a page.

        With several segments the head moves between them, so no request starts where the previous one ended.
        """
        return replace(
            self,
            seek_s=self.seek_s * segments,
            transfer_s_per_page=self.transfer_s_per_page * segments,
            follows=self.follows if segments == 1 else 1.0,
        )


def _dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
