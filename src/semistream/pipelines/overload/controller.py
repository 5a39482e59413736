"""OverloadController: limit the rows that each batch joins, so that rows reach their tables within the latency goal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semistream.pipelines.overload.service_times import PRIOR, Observation, ServiceModel, ServiceTimes

_HEADROOM = 0.8  # share of the goal used under a steady overload: batches take up to a quarter longer than predicted
_TIGHT = 0.9  # share of the goal that the oldest row of a batch may use when the previous batch was late
_LEAST = 0.5  # least share of a full batch after a late one
_FOR_ROWS = 0.25  # least share of a batch's time for joining rows, whatever shedding the others costs
_GAP_S = 0.3  # from the end of a batch to the next, until one is measured
_SMOOTHED = 0.5  # weight of the latest gap in the running mean


class OverloadController:
    """Controller of how many rows each batch may join.

    A batch takes in all waiting rows. A row therefore waits for the previous batch to end, and then for its own: with
    batches of D seconds and gaps of g seconds, the oldest row of a batch is done D + g + D after it came. Under a
    steady overload every batch gets the largest D that keeps this within the goal, with headroom: each batch has a
    fixed cost, so larger batches lose fewer rows, and equal batches do not oscillate.

    - A batch that fits is not cut.
    - After a batch that took longer, the next is cut so that its oldest row is in time, but not below half of D.
    - If that row is already late, cutting gains nothing, and the batch gets D.
    - If shedding would take nearly all of the time, a quarter of it still goes to joining rows.

    Until the cost of a row is measured, a batch gets the time of a first batch (`first_s`, about 70 % of the goal and
    nearly twice D), after which a batch of half of D is still in time. Only rows that do not fit even then, by the
    ``prior``, are shed.

    Durations come from a monotonic clock. Ages come from other clocks, which may jump; whatever they say, a batch gets
    between half of D and D, or between half of D and `first_s` before the cost is measured.

    Parameters
    ----------
    goal_s
        Latency goal: seconds from a row's arrival to its table.
    every_s
        Seconds between the beginnings of batches that take less.
    clock
        Monotonic clock in seconds (`time.perf_counter`).
    seen
        Measured times of earlier batches, if known.
    prior
        Service model used before any batch is measured.

    >>> seconds = iter([0.0, 3.0, 3.5, 3.5])
    >>> controller = OverloadController(30.0, 1.0, lambda: next(seconds))
    >>> controller.begin()
    >>> controller.end(joined=200_000)
    3.0
    >>> controller.begin()
    >>> 0 < controller.allow(5_000_000, oldest_s=4.0) < 5_000_000
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
        """Current model of the time that a batch takes."""
        return self._times.model

    @property
    def seen(self) -> list[Observation]:
        """Measured batches to start from after a restart."""
        return self._times.seen

    @property
    def measured(self) -> bool:
        """True if the cost of a row is measured rather than assumed."""
        return self._times.measured

    @property
    def first_s(self) -> float:
        """Seconds that a first batch may take: a next one of half of D is then still in time."""
        return max(_TIGHT * self.goal_s - self._gap_s - _LEAST * self.batch_s, self.batch_s)

    @property
    def batch_s(self) -> float:
        """Seconds that a batch may take under a steady overload (D)."""
        usable = _HEADROOM * self.goal_s
        return max(min((usable - self._gap_s) / 2, usable - self.every_s), 0.0)

    @property
    def attainable(self) -> bool:
        """True if the goal leaves a batch time for rows, beyond its fixed cost."""
        return self.model.fixed_s < self.batch_s

    @property
    def least_goal_s(self) -> float:
        """Shortest goal, in seconds, under which half of a batch's time goes to its rows."""
        return max(4 * self.model.fixed_s + self._gap_s, 2 * self.model.fixed_s + self.every_s) / _HEADROOM

    @property
    def batch_rows(self) -> int:
        """Rows that a batch of D seconds joins."""
        return int(max(self.batch_s - self.model.fixed_s, self.model.fixed_s) / max(self.model.joined_s, 1e-12))

    def begin(self) -> None:
        """Start the clock of a batch."""
        now = self._clock()
        if self._ended is not None and self._took_s >= self.every_s:  # a shorter batch waits for its next trigger
            gap_s = min(max(now - self._ended, 0.0), self.goal_s / 4)
            self._gap_s += _SMOOTHED * (gap_s - self._gap_s)
        self._began = now

    def end(self, *, joined: int, shed: int = 0, learn: bool = True) -> float:
        """Stop the clock of a batch, and return its seconds; with ``learn``, add it to the model.

        Pass ``learn=False`` for a batch that found its work already done, by an earlier run.
        """
        now = self._clock()
        self._took_s = max(now - self._began, 0.0) if self._began is not None else 0.0
        self._ended, self._began = now, None
        if learn:
            self._times.add(Observation(self._took_s, joined, shed))
        return self._took_s

    def allow(self, rows: int, *, oldest_s: float, owed: int = 0) -> int:
        """Return how many of ``rows`` may be joined, the oldest of which came ``oldest_s`` ago.

        ``owed`` rows, which waited since earlier batches or are repaired, are joined in any case.
        """
        model, full = self.model, self.batch_s if self.measured else self.first_s
        spent_s = 0.0 if self._began is None else max(self._clock() - self._began, 0.0)
        left_s = _TIGHT * self.goal_s - max(oldest_s, 0.0)
        seconds = full if oldest_s > self.goal_s else min(max(left_s, _LEAST * self.batch_s), full)
        seconds = max(seconds, 2 * model.fixed_s)  # if the goal is not attainable, half of the time goes to rows
        for_rows = seconds - spent_s - model.joined_s * owed
        least = int(max(_FOR_ROWS * for_rows - model.fixed_s, 0.0) / max(model.joined_s, 1e-12))
        return max(model.joinable(rows, for_rows), min(rows, least))

    def spare_rows(self) -> int:
        """Return how many archived rows a batch of their own can join while the next batches stay in time.

        They get half of the time of a full batch that remains after their batch's fixed cost and another batch like the
        last one, which may well follow.
        """
        free_s = self.batch_s - max(self._took_s, self.model.fixed_s) - self.model.fixed_s
        return int(max(0.5 * free_s, 0.0) / max(self.model.joined_s, 1e-12))
