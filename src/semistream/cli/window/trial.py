"""WindowTrial: what policies, and the optimum, make of two streams in a memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import pyarrow as pa

from semistream.cli.window.report import CurvePoint
from semistream.cli.window.streams import WindowStreams
from semistream.windows import (
    POLICIES,
    GivenProbabilities,
    Policy,
    WindowJoin,
    count_window_pairs,
    exact_memory,
    optimal_offline,
)
from semistream.windows.join.capacity import Allocation
from semistream.windows.optimum.timeline import Unit
from semistream.windows.policies import WeighingPolicy
from semistream.windows.streams.event_time import EventTime
from semistream.windows.streams.lengths import WindowLength, Windows

_SHARES = (0.05, 0.125, 0.25, 0.5, 0.75, 1.0)  # WINDOW 5.2.1: M is 0.1 w to 1.5 w, and 2 w is exact
_LEAST_LEARNT, _LEAST = 16, 2  # tuples: a policy that learns has its sketch among them


@dataclass(frozen=True)
class WindowTrial:
    """Two streams, their window, how they share the memory, and whether policies learn how often keys come."""

    streams: WindowStreams
    window: Windows
    allocation: Allocation
    learnt: bool

    def operator(self, policy: str, memory: int | str, streams: WindowStreams | None = None) -> WindowJoin:
        """The join with a policy in a memory."""
        return (streams or self.streams).operator(
            window=self.window, memory=memory, policy=self._policy(policy), allocation=self.allocation
        )

    def load_kernels(self, policy: str, memory: int | str) -> None:
        """Join a row of each stream, so that times are not those of a compiler."""
        some = self._narrow.head(1)
        for _ in some.through(self.operator(policy, memory, some)):
            pass

    def results(self, policy: str, memory: int | str) -> int:
        """How many results it gives."""
        join = self.operator(policy, memory, self._narrow)
        return sum(batch.num_rows for batch in self._narrow.through(join))

    @cached_property
    def exact(self) -> int:
        """How many results there are."""
        left_times, right_times = self.streams.times
        return count_window_pairs(
            *self._keys, window=self._lengths, unit=self._unit, left_times=left_times, right_times=right_times
        )

    @cached_property
    def exact_memory(self) -> int:
        """In how many tuples nobody must leave."""
        return exact_memory(*self.streams.times, window=self._lengths, unit=self._unit, allocation=self.allocation)

    def optimum(self, memory: int) -> tuple[int, float]:
        """The most that can be had in so many tuples, and the seconds that it took to find out."""
        left_times, right_times = self.streams.times
        start = perf_counter()
        best = optimal_offline(
            *self._keys,
            window=self._lengths,
            unit=self._unit,
            memory=memory,
            allocation=self.allocation,
            left_times=left_times,
            right_times=right_times,
        )
        return int(best.results), perf_counter() - start

    def memories(self, at_hand: int | str) -> list[int]:
        """Sizes for a curve: shares of what is exact, and the one at hand."""
        least = _LEAST_LEARNT if self.learnt else _LEAST
        sizes = {max(least, 2 * round(share * self.exact_memory / 2)) for share in _SHARES}
        return sorted(sizes | ({at_hand} if isinstance(at_hand, int) else set()))

    def policies(self) -> list[str]:
        """Those that can be used in such windows."""
        bounded = None not in self._lengths
        return [name for name in POLICIES if bounded or name != "life"]

    def curve(self, memories: Iterable[int], *, optimal: bool, done: Callable[[], None]) -> list[CurvePoint]:
        """What all policies, and the optimum, give in several memories; ``done`` is told of each run."""
        points = []
        for memory in memories:
            results = {}
            for name in self.policies():
                results[name] = self.results(name, memory)
                done()
            optimum = None
            if optimal:
                optimum, _ = self.optimum(memory)
                done()
            points.append(CurvePoint(memory, results, optimum))
        return points

    def _policy(self, name: str) -> Policy:
        kind = POLICIES[name]
        if self.learnt or not issubclass(kind, WeighingPolicy):
            return kind()
        return kind(self._frequencies)

    @cached_property
    def _frequencies(self) -> GivenProbabilities:
        return GivenProbabilities.of_streams(*self.streams.tables, on=self.streams.on)

    @cached_property
    def _narrow(self) -> WindowStreams:
        return self.streams.narrowed()

    @cached_property
    def _keys(self) -> tuple[pa.Table, pa.Table]:
        return self.streams.keys()

    @cached_property
    def _windows(self) -> tuple[WindowLength, WindowLength]:
        return WindowLength.pair(self.window, EventTime.of(*self.streams.schemas, self.streams.time))

    @property
    def _lengths(self) -> tuple[int | None, int | None]:
        left, right = (each.length if each.bounded else None for each in self._windows)
        return left, right

    @property
    def _unit(self) -> Unit:
        """Of both windows: one without an end goes with either."""
        return "tuples" if any(each.by_tuples for each in self._windows) else "time"
