"""Eviction policies: the order in which tuples leave the memory of a window join when it is full.

- PROB keeps the tuples whose partners are most likely to arrive.
- LIFE keeps the tuples that would produce most if they stayed until they expire.
- EXPECTED keeps the tuples that will gain most over those that could replace them.
- RANDOM evicts a uniformly random tuple.
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
    """Base class of eviction policies: the least worthy tuple leaves, and the oldest among equals.

    Arriving tuples compete with those in memory. The policies are `Prob`, `Life`, `Expected` and `Random`. The kernels
    rank tuples by the policy's ``code``, so a subclass with an order of its own is not possible.

    Methods
    -------
    accept(windows)
        Raise `InvalidArgument` if the policy cannot handle these windows.

    Examples
    --------
    >>> [policy.name for policy in (Prob(), Life(), Expected(), Random()) if isinstance(policy, Policy)]
    ['prob', 'life', 'expected', 'random']

    References
    ----------
    WINDOW 4.2. docs/windows.md compares the policies.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    classes: ClassVar[int] = 1 << 20
    """Most distinct values kept apart exactly; with more, values within 3 % of each other count as equal."""

    def accept(self, windows: tuple[WindowLength, WindowLength]) -> None:  # noqa: B027  # most accept any
        """Raise `InvalidArgument` if the policy cannot handle these windows."""


@dataclass(frozen=True)
class WeighingPolicy(Policy):
    """A policy that ranks tuples by the probability of a partner; ``probabilities`` is the source of these numbers."""

    probabilities: Probabilities = field(default_factory=LearntProbabilities)


def require_bounded(policy: Policy, windows: tuple[WindowLength, WindowLength]) -> None:
    """Raise `InvalidArgument` if a window is unbounded."""
    for side, window in zip(SIDES, windows, strict=True):
        if not window.bounded:
            raise InvalidArgument(
                f"policy {policy.name!r} ranks tuples by their remaining lifetime, but the {side} window is unbounded; "
                "give a bounded window, or the policy 'prob' (WINDOW 6.2)."
            )


@dataclass(frozen=True)
class Prob(WeighingPolicy):
    """The PROB policy: a tuple is worth the probability of a partner in the other stream, times a result's weight.

    The paper's PROB heuristic: p_S(r) for a tuple r of R. It ignores the remaining lifetime, so it also works for
    unbounded windows (6.2). Takes a constant number of steps per tuple.

    Parameters
    ----------
    probabilities : Probabilities
        Source of the probabilities: `LearntProbabilities` (the default), `GivenProbabilities` or
        `ComputedProbabilities`.

    Examples
    --------
    >>> Prob().name, Prob().probabilities
    ('prob', LearntProbabilities(half_life=None, refresh=None, width=None))
    >>> import pyarrow as pa
    >>> from semistream.windows import GivenProbabilities, WindowJoin
    >>> stream, rows = pa.schema([("k", pa.int64())]), pa.table({"k": [1, 2, 3, 1, 1, 2, 1]})
    >>> known = GivenProbabilities.of_streams(rows, rows, on="k")
    >>> join = WindowJoin(stream, stream, on="k", window=5, memory=2, policy=Prob(known))  # exact: 19 results
    >>> (batch,) = rows.to_batches()
    >>> sum(b.num_rows for b in [*join.push_left(batch), *join.push_right(batch), *join.finish()])
    13

    References
    ----------
    WINDOW 4.2.1.
    """

    name: ClassVar[str] = "prob"
    code: ClassVar[int] = BY_CLASS


@dataclass(frozen=True)
class Life(WeighingPolicy):
    """The LIFE policy: a tuple is worth its PROB worth times its remaining lifetime.

    The paper's LIFE heuristic: t * p_S(r). The paper does not say if t includes the current instant. Here it does not:
    the tuple has already met its partners of that instant, so its worth is what keeping it may still bring. In a window
    of tuples the lifetime counts tuples of the same stream. Unbounded windows are refused. Each eviction examines all
    non-empty priority classes, up to 4097.

    Parameters
    ----------
    probabilities : Probabilities
        Source of the probabilities: `LearntProbabilities` (the default), `GivenProbabilities` or
        `ComputedProbabilities`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from semistream.windows import GivenProbabilities, WindowJoin
    >>> stream, rows = pa.schema([("k", pa.int64())]), pa.table({"k": [1, 2, 3, 1, 1, 2, 1]})
    >>> known = GivenProbabilities.of_streams(rows, rows, on="k")
    >>> join = WindowJoin(stream, stream, on="k", window=5, memory=2, policy=Life(known))  # exact: 19 results
    >>> (batch,) = rows.to_batches()
    >>> sum(b.num_rows for b in [*join.push_left(batch), *join.push_right(batch), *join.finish()])
    13

    References
    ----------
    WINDOW 4.2.2.
    """

    name: ClassVar[str] = "life"
    code: ClassVar[int] = BY_LIFE
    classes: ClassVar[int] = 4096

    def accept(self, windows: tuple[WindowLength, WindowLength]) -> None:
        """Raise `InvalidArgument` for unbounded windows, in which lifetimes never end."""
        require_bounded(self, windows)


@dataclass(frozen=True)
class Expected(WeighingPolicy):
    """The EXPECTED policy: a tuple is worth its expected results while it stays, less those of its replacement.

    WINDOW 4.2.2 suggests the expected lifetime in memory as a better measure than LIFE's, and leaves it to future
    work. LIFE overrates young tuples with unlikely partners, because these will not stay. But multiplying a
    probability by the time that similar tuples have stayed is even worse than PROB: old tuples with likely partners
    give way to young ones with less likely partners, although a place in memory earns at each instant what its tuple
    earns, however long that tuple has to live. A short life costs only this: the place must be filled again, with a
    tuple no better than the least worthy ones in memory.

    A tuple with probability p and t instants to live is therefore worth ``(p - c) * min(t, h)``. c is the price of a
    place, a moving average (over about 64 evictions) of the lowest probability kept. The horizon h is an eighth of
    the longer window; beyond it, a tuple near the margin is unlikely to be still in memory. Tuples with p below c
    rank by p, below all others.

    Over the paper's grid (5.2) it keeps about as much as PROB, from 0.3 % less to 0.2 % more: with independent
    arrivals, only knowledge of the future could gain much over PROB. In unbounded windows it is identical to PROB.

    Parameters
    ----------
    probabilities : Probabilities
        Source of the probabilities: `LearntProbabilities` (the default), `GivenProbabilities` or
        `ComputedProbabilities`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from semistream.windows import GivenProbabilities, WindowJoin
    >>> stream, rows = pa.schema([("k", pa.int64())]), pa.table({"k": [1, 2, 3, 1, 1, 2, 1]})
    >>> known = GivenProbabilities.of_streams(rows, rows, on="k")
    >>> join = WindowJoin(stream, stream, on="k", window=5, memory=2, policy=Expected(known))  # exact: 19 results
    >>> (batch,) = rows.to_batches()
    >>> sum(b.num_rows for b in [*join.push_left(batch), *join.push_right(batch), *join.finish()])
    13

    References
    ----------
    WINDOW 4.2.2, future work; 5.2. docs/windows.md.
    """

    name: ClassVar[str] = "expected"
    code: ClassVar[int] = BY_EXPECTED
    classes: ClassVar[int] = 4096


@dataclass(frozen=True)
class Random(Policy):
    """The RANDOM policy: every tuple is equally likely to leave.

    The paper's RAND: the state of the art before it, and the baseline of its experiments.

    Parameters
    ----------
    seed : int
        Fixes the draws: equal streams lose equal tuples, however they are cut into batches, even after a restore.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from semistream.windows import WindowJoin
    >>> stream, batch = pa.schema([("k", pa.int64())]), pa.record_batch({"k": [1, 2, 3, 1, 1, 2, 1]})
    >>> join = WindowJoin(stream, stream, on="k", window=5, memory=2, policy=Random(seed=7))  # exact: 19 results
    >>> sum(b.num_rows for b in [*join.push_left(batch), *join.push_right(batch), *join.finish()])
    11

    References
    ----------
    WINDOW 5.2.
    """

    name: ClassVar[str] = "random"
    code: ClassVar[int] = AT_RANDOM
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("seed", self.seed, least=0)
