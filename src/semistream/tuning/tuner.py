"""Tuner: the operator and the options that a workload is best joined with, in a memory or at a rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from semistream.budget import format_bytes
from semistream.errors import BudgetError
from semistream.tuning.machine import Machine
from semistream.tuning.prediction import Prediction, predict
from semistream.tuning.work import OperatorModel
from semistream.tuning.workload import Workload

_STEP = 1.1  # from one memory to the next where all are tried
_CLOSE = 0.01  # of a memory, to which the least is found

Options = Mapping[str, float]


class Arranged(NamedTuple):
    """An operator's model in a memory, and what each part of it takes, in bytes."""

    model: OperatorModel
    parts: Mapping[str, int]


class Candidate(Protocol):
    """An operator that could be used."""

    @property
    def name(self) -> str:
        """The operator's name."""

    @property
    def settings(self) -> Sequence[Options]:
        """The options to choose from."""

    def arranged(self, memory_bytes: int, options: Options) -> Arranged:
        """What it makes of a memory with some options; one that is too small is refused with the least that is not."""


@dataclass(frozen=True)
class Tuner:
    """Both problems of MESH 3.3 over all operators and their options, and the least latency.

    Options are few, so that all are tried; what a memory is good for is had by trying the model, which is exact in
    what fits. Rates grow with the memory but for small steps (a buffer more, a longer run), so the least memory for a
    rate is found between two memories of a ladder by halving, after the first rung that is enough.
    """

    workload: Workload
    machine: Machine
    candidates: Sequence[Candidate]

    def choices(self, memory_bytes: int) -> list[Prediction]:
        """The best setting of each operator that can do with a memory, the fastest first."""
        found = [best for each in self.candidates if (best := self._best(each, memory_bytes)) is not None]
        return sorted(found, key=lambda choice: -choice.rate)

    def best_rate(self, memory_bytes: int) -> Prediction:
        """The operator and options of the greatest rate in a memory; refused if it is too small for all."""
        choices = self.choices(memory_bytes)
        if not choices:
            least = self.least_bytes
            raise BudgetError(
                f"a budget of {memory_bytes} bytes is too small for any operator: the least that one needs here is "
                f"{least} bytes ({format_bytes(least)}). Raise memory to that.",
                least_bytes=least,
            )
        return choices[0]

    def least_memory(self, rate: float, most_bytes: int) -> Prediction | None:
        """The least memory up to ``most_bytes`` with which any operator takes ``rate`` tuples per second, and which."""
        for before, memory in _pairs(self._ladder(most_bytes)):
            if self._sustains(rate, memory):
                least = _first(lambda nbytes: self._sustains(rate, nbytes) is not None, before, memory)
                return self._sustains(rate, least)
        return None

    def least_latency(self, most_bytes: int, rate: float) -> Prediction | None:
        """What answers soonest at a rate within a memory: it need not take all of it.

        The less memory, the fewer tuples wait for each other; so of those that sustain the rate the median latency
        decides, and then the worst.
        """
        keep_up = [
            choice
            for memory in self._ladder(most_bytes)
            for choice in self._settings(memory)
            if choice.rate >= rate and math.isfinite(choice.median_latency_s)
        ]
        return min(keep_up, key=lambda choice: (choice.median_latency_s, choice.worst_latency_s), default=None)

    @property
    def least_bytes(self) -> int:
        """The least memory that any operator can do with."""
        return min(self._least(candidate) for candidate in self.candidates)

    def predicted(self, candidate: Candidate, memory_bytes: int, options: Options) -> Prediction:
        """What is expected of an operator with some options."""
        model = candidate.arranged(memory_bytes, options).model
        return predict(candidate.name, model, self.workload, self.machine, memory_bytes=memory_bytes, options=options)

    def _best(self, candidate: Candidate, memory_bytes: int) -> Prediction | None:
        return max(self._tried(candidate, memory_bytes), key=lambda choice: choice.rate, default=None)

    def _tried(self, candidate: Candidate, memory_bytes: int) -> Iterator[Prediction]:
        for options in candidate.settings:
            try:
                yield self.predicted(candidate, memory_bytes, options)
            except BudgetError:
                continue

    def _settings(self, memory_bytes: int) -> Iterator[Prediction]:
        for candidate in self.candidates:
            yield from self._tried(candidate, memory_bytes)

    def _sustains(self, rate: float, memory_bytes: int) -> Prediction | None:
        best = next(iter(self.choices(memory_bytes)), None)
        return best if best is not None and best.rate >= rate else None

    def _ladder(self, most_bytes: int) -> list[int]:
        """Memories to try, from the least that is enough for any operator."""
        least = self.least_bytes
        if least > most_bytes:
            return []
        rungs = math.ceil(math.log(most_bytes / least) / math.log(_STEP)) if most_bytes > least else 0
        return [*(math.floor(least * _STEP**rung) for rung in range(rungs)), most_bytes]

    def _least(self, candidate: Candidate) -> int:
        try:
            candidate.arranged(1, candidate.settings[0])
        except BudgetError as error:
            if error.least_bytes is None:
                raise
            return error.least_bytes
        return 1


def _pairs(rungs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each rung with the one before it; the first with itself."""
    return zip([rungs[0], *rungs[:-1]] if rungs else [], rungs, strict=True)


def _first(enough: Callable[[int], bool], low: int, high: int) -> int:
    """A memory above ``low`` that is enough, and within a hundredth of one that is not; ``high`` is."""
    if enough(low):
        return low
    while high - low > max(_CLOSE * low, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
