"""Policy: which tuple leaves the memory of a window join when there is no room.

PROB: keep the tuples whose partners are likeliest to arrive.

LIFE: keep the tuples that would produce most if they stayed until they expire.

EXPECTED: keep the tuples that will gain most over those that could take their places.

RANDOM: evict any tuple, all being equally likely.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import ClassVar

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument
from semistream.windows.kernels.priorities import AT_RANDOM, BY_CLASS, BY_EXPECTED, BY_LIFE
from semistream.windows.probabilities import LearntProbabilities, Probabilities
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import WindowLength


@dataclass(frozen=True)
class Policy(ABC):
    """The least worthy tuple leaves; of tuples of equal worth the one that arrived first (WINDOW 4.2).

    A tuple that arrives is a candidate like those in memory. ``code`` is what the kernels call the policy.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    classes: ClassVar[int] = 1 << 20
    """Values that are told apart exactly; where there are more, values within 3 % count as equal."""

    def accept(self, windows: tuple[WindowLength, WindowLength]) -> None:  # noqa: B027  # most take any
        """Refuse windows that the policy can make nothing of."""


@dataclass(frozen=True)
class WeighingPolicy(Policy):
    """A policy that goes by how likely partners are; ``probabilities`` says where that is known from."""

    probabilities: Probabilities = field(default_factory=LearntProbabilities)


def require_bounded(policy: Policy, windows: tuple[WindowLength, WindowLength]) -> None:
    """Refuse windows without an end."""
    for side, window in zip(SIDES, windows, strict=True):
        if not window.bounded:
            raise InvalidArgument(
                f"policy {policy.name!r} goes by what is left of a tuple's life, but the {side} window is unbounded; "
                "give a window, or the policy 'prob' (WINDOW 6.2)."
            )


@dataclass(frozen=True)
class Prob(WeighingPolicy):
    """A tuple is worth the probability that a tuple of the other stream is its partner, times the weight of a result.

    The paper's PROB heuristic (WINDOW 4.2.1): p_S(r) for a tuple r of R. It takes no account of how long a tuple has to
    live, and works for unbounded windows as it is (6.2). A constant number of steps for each tuple.

    >>> Prob().name, Prob().probabilities
    ('prob', LearntProbabilities(half_life=None, refresh=None, width=None))
    """

    name: ClassVar[str] = "prob"
    code: ClassVar[int] = BY_CLASS


@dataclass(frozen=True)
class Life(WeighingPolicy):
    """A tuple is worth what it is to PROB times what is left of its life.

    The paper's LIFE heuristic (WINDOW 4.2.2): t * p_S(r). The paper does not say whether the instant at hand counts; it
    does not here, as the tuple has met its partners of that instant, so that worth is what keeping it may still bring.
    In a window of tuples what is left is counted in tuples of its own stream. Each eviction looks at all classes of
    priority that are there, up to 4097.
    """

    name: ClassVar[str] = "life"
    code: ClassVar[int] = BY_LIFE
    classes: ClassVar[int] = 4096

    def accept(self, windows: tuple[WindowLength, WindowLength]) -> None:
        """Refuse unbounded windows, in which no life has an end."""
        require_bounded(self, windows)


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


@dataclass(frozen=True)
class Random(Policy):
    """The paper's RAND (WINDOW 5.2): the state of the art before it, and the baseline of its experiments.

    ``seed`` fixes the draws: equal streams lose equal tuples, however they are cut into batches, also after a restore.
    """

    name: ClassVar[str] = "random"
    code: ClassVar[int] = AT_RANDOM
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("seed", self.seed, least=0)
