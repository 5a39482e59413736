"""EXPECTED: keep the tuples that will gain most over those that could take their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.kernels.window_classes import BY_EXPECTED
from semistream.windows.policy import WeighingPolicy


@dataclass(frozen=True)
class Expected(WeighingPolicy):
    """A tuple is worth the results that are to be expected of it while it stays, less those of what takes its place.

    WINDOW 4.2.2 names the expected lifetime in memory as the better idea than LIFE's, and leaves it to future work.
    LIFE overrates young tuples with unlikely partners, since these will not stay. But to multiply a probability with
    the time that tuples of its kind have stayed is still worse than PROB: old tuples with likely partners make way for
    young ones with less likely partners, while a place in memory earns what its tuple earns at each instant, however
    long that tuple has to live. What a short life costs is only that the place must be filled again, and not with
    better than the least worthy tuples that are kept. So a tuple with probability p and t instants to live is worth
    ``(p - c) * min(t, h)``, where c is the price of a place, a moving mean (over 64 evictions or so) of the lowest
    probability that is kept, and the horizon h an eighth of the longer window: beyond it a tuple near the margin is
    not to be expected in memory any more. Tuples with p below c rank by p, below all others.

    Over the paper's grid (5.2) it keeps what PROB keeps, from 0.3 % less to 0.2 % more: with independent arrivals PROB
    leaves next to nothing to gain without knowing the future. In windows without an end it is PROB.
    """

    name: ClassVar[str] = "expected"
    code: ClassVar[int] = BY_EXPECTED
    classes: ClassVar[int] = 4096
