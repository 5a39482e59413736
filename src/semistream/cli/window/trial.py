"""WindowTrial: run policies, and the offline optimum, on two streams with a given memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import pyarrow as pa

from semistream.cli.window.report import PolicyResults
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

_SHARES = (
    0.05,
    0.125,
    0.25,
    0.5,
    0.75,
    1.0,
)  # of the exact memory; WINDOW 5.2.1: M is 0.1 w to 1.5 w, and 2 w is exact
_LEAST_LEARNT, _LEAST = 16, 2  # least memory in tuples; a learning policy spends some of it on its sketch


@dataclass(frozen=True)
class WindowTrial:
    """Two streams, their window and memory allocation; ``learnt`` is True if policies learn the key frequencies."""

    streams: WindowStreams
    window: Windows
    allocation: Allocation
    learnt: bool

    def operator(self, policy: str, memory: int | str, streams: WindowStreams | None = None) -> WindowJoin:
        """Create the join with a policy and a memory."""
        return (streams or self.streams).operator(
            window=self.window, memory=memory, policy=self._policy(policy), allocation=self.allocation
        )

    def load_kernels(self, policy: str, memory: int | str) -> None:
        """Join one row of each stream, so that later timings include no compilation."""
        some = self._narrow.head(1)
        for _ in some.through(self.operator(policy, memory, some)):
            pass

    def results(self, policy: str, memory: int | str) -> int:
        """Count the results of a policy in a memory."""
        join = self.operator(policy, memory, self._narrow)
        return sum(batch.num_rows for batch in self._narrow.through(join))

    @cached_property
    def exact(self) -> int:
        """Size of the exact result."""
        left_times, right_times = self.streams.times
        return count_window_pairs(
            *self._keys, window=self._lengths, unit=self._unit, left_times=left_times, right_times=right_times
        )

    @cached_property
    def exact_memory(self) -> int:
        """Memory in tuples at which nothing is evicted."""
        return exact_memory(*self.streams.times, window=self._lengths, unit=self._unit, allocation=self.allocation)

    def optimum(self, memory: int) -> tuple[int, float]:
        """Return the most results possible with ``memory`` tuples, and the seconds needed to compute them."""
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
        """Return memory sizes for a curve: shares of the exact memory, and ``at_hand`` if it is in tuples."""
        least = _LEAST_LEARNT if self.learnt else _LEAST
        sizes = {max(least, 2 * round(share * self.exact_memory / 2)) for share in _SHARES}
        return sorted(sizes | ({at_hand} if isinstance(at_hand, int) else set()))

    def policies(self) -> list[str]:
        """Return the policies that work with these windows; LIFE needs bounded ones."""
        bounded = None not in self._lengths
        return [name for name in POLICIES if bounded or name != "life"]

    def curve(self, memories: Iterable[int], *, optimal: bool, done: Callable[[], None]) -> list[PolicyResults]:
        """Run all policies, and the optimum if ``optimal``, in each memory, calling ``done`` after each run."""
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
            points.append(PolicyResults(memory, results, optimum))
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
        """Unit of both windows; an unbounded window fits either unit."""
        return "tuples" if any(each.by_tuples for each in self._windows) else "time"
