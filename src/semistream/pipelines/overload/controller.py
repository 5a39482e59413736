"""OverloadController: how many rows a batch may join, so that rows are in their tables within the goal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from semistream.pipelines.overload.service_times import PRIOR, Observation, ServiceModel, ServiceTimes

_HEADROOM = 0.8  # of the goal, that a steady overload takes: batches are up to a quarter longer than was thought
_TIGHT = 0.9  # of the goal, that the oldest row of a batch may take when the batch before was late
_LEAST = 0.5  # of a full batch, that one is cut to when the one before was late
_FOR_ROWS = 0.25  # of a batch's time, that goes to rows that are joined, whatever it takes to shed the others
_GAP_S = 0.3  # from the end of a batch to the next, as long as none was seen
_SMOOTHED = 0.5


@dataclass(frozen=True)
class Allowance:
    """What a batch may do: ``joined`` of its rows, which then takes it about ``seconds``."""

    joined: int
    seconds: float


class OverloadController:
    """Says for each batch how many of its rows may be joined.

    A batch takes in all that waits. So a row waits for the batch before its own and then for its own: with batches of D
    seconds and gaps of g between them, the oldest row of a batch is done D + g + D after it came. Under a lasting
    overload every batch gets the time D for which that is within the goal (with headroom); more rows in larger batches
    lose fewer, as each batch costs a fixed time, and equal batches do not oscillate. If the batch before took longer,
    this one is cut so that its own oldest row is in time, but not below half of D; if that row is late already, nothing
    is gained by losing more, and the batch gets D. Nor is anything gained where to shed rows takes nearly all the time:
    a quarter of it is for rows that are joined in any case. A batch that fits is not touched.

    As long as it was not measured what rows take, it is measured first: a batch then gets all the time that the goal
    allows one that none went before, after which the next, cut to half of D, is in time. That is nearly twice D, and
    only what the ``prior`` has no time for even then is shed.

    Seconds are those of a clock that never jumps; ages come from other clocks, and whatever they are, a batch gets
    between half of D and D, or before it was measured the time of a first one.

    Parameters
    ----------
    goal_s
        Within so many seconds after they came rows are to be in their tables.
    every_s
        How often batches begin, if they take less.
    clock
        Seconds that only grow (`time.perf_counter`).
    seen
        What batches before have taken, if that is known.
    prior
        What batches are taken to take before any was seen.

    >>> seconds = iter([0.0, 3.0, 3.5, 3.5])
    >>> controller = OverloadController(30.0, 1.0, lambda: next(seconds))
    >>> controller.begin()
    >>> controller.end(joined=200_000)
    3.0
    >>> controller.begin()
    >>> 0 < controller.allow(5_000_000, oldest_s=4.0).joined < 5_000_000
    True
    """

    def __init__(
        self,
        goal_s: float,
        every_s: float,
        clock: Callable[[], float],
        seen: Sequence[Observation] = (),
        prior: ServiceModel = PRIOR,
    ) -> None:
        self.goal_s, self.every_s = goal_s, every_s
        self._clock = clock
        self._times = ServiceTimes(seen, prior)
        self._gap_s = _GAP_S
        self._began: float | None = None
        self._ended: float | None = None
        self._took_s = 0.0

    @property
    def model(self) -> ServiceModel:
        """What batches are taken to take."""
        return self._times.model

    @property
    def seen(self) -> list[Observation]:
        """What is remembered of batches, to begin with the next time."""
        return self._times.seen

    @property
    def measured(self) -> bool:
        """Whether it was measured what rows take, or is only thought."""
        return self._times.measured

    @property
    def first_s(self) -> float:
        """How long a batch may take that none went before: the next, of half of D, then is in time."""
        return max(_TIGHT * self.goal_s - self._gap_s - _LEAST * self.batch_s, self.batch_s)

    @property
    def batch_s(self) -> float:
        """D: how long batches of a steady overload may take."""
        usable = _HEADROOM * self.goal_s
        return max(min((usable - self._gap_s) / 2, usable - self.every_s), 0.0)

    @property
    def attainable(self) -> bool:
        """Whether the goal leaves a batch time for rows, beyond what it takes without any."""
        return self.model.fixed_s < self.batch_s

    @property
    def least_goal_s(self) -> float:
        """The shortest goal under which half of a batch's time goes to its rows."""
        return max(4 * self.model.fixed_s + self._gap_s, 2 * self.model.fixed_s + self.every_s) / _HEADROOM

    @property
    def batch_rows(self) -> int:
        """How many rows a batch of D seconds joins."""
        return int(max(self.batch_s - self.model.fixed_s, self.model.fixed_s) / max(self.model.joined_s, 1e-12))

    def begin(self) -> None:
        """A batch begins."""
        now = self._clock()
        if self._ended is not None and self._took_s >= self.every_s:  # else Spark has waited for the next time to begin
            gap_s = min(max(now - self._ended, 0.0), self.goal_s / 4)
            self._gap_s += _SMOOTHED * (gap_s - self._gap_s)
        self._began = now

    def end(self, *, joined: int, shed: int = 0, learn: bool = True) -> float:
        """The batch is done; gives its seconds. One whose work was done before it began teaches nothing."""
        now = self._clock()
        self._took_s = max(now - self._began, 0.0) if self._began is not None else 0.0
        self._ended, self._began = now, None
        if learn:
            self._times.add(Observation(self._took_s, joined, shed))
        return self._took_s

    def allow(self, rows: int, *, oldest_s: float, owed: int = 0) -> Allowance:
        """How many of ``rows``, the oldest of which came ``oldest_s`` ago, may be joined beside ``owed`` others.

        Those others, which had to wait before, are joined in any case.
        """
        model, full = self.model, self.batch_s if self.measured else self.first_s
        spent_s = 0.0 if self._began is None else max(self._clock() - self._began, 0.0)
        left_s = _TIGHT * self.goal_s - max(oldest_s, 0.0)
        seconds = full if oldest_s > self.goal_s else min(max(left_s, _LEAST * self.batch_s), full)
        seconds = max(seconds, 2 * model.fixed_s)  # where the goal is not attainable, half of the time goes to rows
        for_rows = seconds - spent_s - model.joined_s * owed
        least = int(max(_FOR_ROWS * for_rows - model.fixed_s, 0.0) / max(model.joined_s, 1e-12))
        joined = max(model.joinable(rows, for_rows), min(rows, least))
        return Allowance(joined, model.seconds(joined + owed, rows - joined))

    def spare_rows(self) -> int:
        """How many rows can be joined in a batch of their own, so that the next ones still are in time.

        Beside it and the batch before, which may well come again, half of the time of a full batch stays free.
        """
        free_s = self.batch_s - max(self._took_s, self.model.fixed_s) - self.model.fixed_s
        return int(max(0.5 * free_s, 0.0) / max(self.model.joined_s, 1e-12))
