"""Tuner: the operator and the options that a workload is best joined with, in a memory or at a rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from semistream.budget import format_bytes
from semistream.costs.machine import Machine
from semistream.costs.prediction import Prediction, predict
from semistream.costs.work import OperatorModel
from semistream.costs.workload import Workload
from semistream.errors import BudgetError

CLEARLY = 1.05
"""Times the rate of the usual operator, above which one that is akin to it is taken instead."""
SURELY = 1.5
"""The same of an operator that works in another way: so much may what is expected of it be off."""

_RUNG = 1.3  # from one memory of the ladder to the next
_STEP = 1.02  # the same, where the least is looked for between rungs
_DIP = 0.7  # of a rate: it does not come down to less of that again with more memory

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
        """The options to choose from; none needs less memory than the first."""

    def arranged(self, memory_bytes: int, options: Options) -> Arranged:
        """What it makes of a memory with some options; one that is too small is refused with the least that is not."""


@dataclass(frozen=True)
class Tuner:
    """Both problems of MESH 3.3 over all operators and their options, and the least latency.

    What an operator makes of a memory is told by its model, which is exact in what fits. Options are few, so all of
    them are tried. Memories are tried on a ladder, from the least that is enough for any operator on, each a third more
    than the one before; what was found for one is kept, so that to ask again costs nothing.

    Rates grow with the memory, but not strictly: where an operator has room for one buffer more it may have less for
    tuples, and does not make up for it until it has a few percent more memory. So the least memory for a rate is looked
    for in steps of 2 %, from below the first rung that is enough (`least_memory`). It is the least but for that, and
    for memories that are just enough where a few bytes more are not.

    If an operator is ``usual``, it is what `chosen` gives unless another one is clearly faster. One that is a
    ``last_resort`` is chosen only if there is too little memory for all others. Those ``akin`` to the usual one do the
    same work by the same code, and their models err alike; others must be expected to be much faster.
    """

    workload: Workload
    machine: Machine
    candidates: Sequence[Candidate]
    usual: str | None = None
    last_resort: frozenset[str] = frozenset()
    akin: frozenset[str] = frozenset()
    _tried: dict[tuple[str, int], list[Prediction]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def choices(self, memory_bytes: int) -> list[Prediction]:
        """The best setting of each operator that can do with a memory, the fastest first."""
        return self._ranked(self.candidates, memory_bytes)

    def best_rate(self, memory_bytes: int) -> Prediction:
        """The operator and options of the greatest rate in a memory; refused if it is too small for all."""
        choices = self.choices(memory_bytes)
        if not choices:
            raise self._too_little(memory_bytes)
        return choices[0]

    def chosen(self, memory_bytes: int) -> Prediction:
        """The usual operator at its best, or the fastest; refused as by `best_rate`.

        It is the fastest if that is clearly faster, or if the usual one does not keep up with the workload and it does.
        """
        choices = self._contenders(memory_bytes) or [self.best_rate(memory_bytes)]
        choices = [choice for choice in choices if choice.operator not in self.last_resort] or choices
        usual = next((choice for choice in choices if choice.operator == self.usual), None)
        if usual is None:
            return choices[0]
        faster = [choice for choice in choices if choice.rate > self.margin(choice.operator) * usual.rate]
        if usual.rate < (self.workload.rate or 0.0) <= choices[0].rate:
            return choices[0]
        return faster[0] if faster else usual

    def _contenders(self, memory_bytes: int) -> list[Prediction]:
        """The choices without operators that cannot beat the usual one by enough, however little they read.

        Only an operator that is asked to keep up with a rate may be chosen for less than that.
        """
        usual = next((each for each in self.candidates if each.name == self.usual), None)
        best = None if usual is None else self._best(usual, memory_bytes)
        if usual is None or best is None or self.workload.rate is not None:
            return self.choices(memory_bytes)
        able = [
            each
            for each in self.candidates
            if each is usual or self.machine.least_s(each.name, self.workload) * self.margin(each.name) * best.rate < 1
        ]
        return self._ranked(able, memory_bytes)

    def margin(self, operator: str) -> float:
        """Times the rate of the usual operator that must be expected of another one for it to be chosen."""
        return CLEARLY if self.usual is None or operator in self.akin else SURELY

    def least_memory(self, rate: float, most_bytes: int) -> Prediction | None:
        """The least memory up to ``most_bytes`` with which any operator takes ``rate`` tuples per second, and which.

        None if there is none on the ladder. A lower one that is enough would have to lie between two rungs that are
        not, with more than a dip between it and the one that is found.
        """
        rungs = self.ladder(most_bytes)
        first = next((number for number, memory in enumerate(rungs) if self._fastest(memory) >= rate), None)
        if first is None:
            return None
        start = max(first - 1, 0)
        if start and self._fastest(rungs[start]) >= _DIP * rate:
            start -= 1  # what came before may have been enough
        promising = [tried for tried in self._settings(rungs[first]) if tried.rate >= _DIP * rate]
        return next(
            self.best_rate(memory)
            for memory in _steps(rungs[start], rungs[first])
            if any(self._sustains(rate, memory, tried) for tried in promising)
        )

    def least_latency(self, rate: float, most_bytes: int) -> Prediction | None:
        """What answers soonest at a rate within a memory, of which it need not take all; None if nothing keeps up.

        Of those that sustain the rate the median latency decides, and then the worst. The less memory, the fewer tuples
        wait for each other, so that of those that come nearest on the ladder the memory is lowered in small steps.
        """
        if rate != self.workload.rate:
            return replace(self, workload=replace(self.workload, rate=rate)).least_latency(rate, most_bytes)
        rungs = self.ladder(most_bytes)
        keep_up = [tried for memory in rungs for tried in self._settings(memory) if tried.rate >= rate]
        if not keep_up:
            return None
        best = min(keep_up, key=_latency)
        near = [
            tried
            for tried in keep_up
            if all(own <= _RUNG * other for own, other in zip(_latency(tried), _latency(best), strict=True))
        ]
        below = dict(zip(rungs[1:], rungs, strict=False))
        lower = (
            self._sustains(rate, memory, tried)
            for tried in near
            for memory in _steps(below.get(tried.memory_bytes, tried.memory_bytes), tried.memory_bytes)
        )
        return min(filter(None, lower), key=_latency, default=best)

    def ladder(self, most_bytes: int) -> list[int]:
        """Memories to try, from the least that is enough for any operator to ``most_bytes``; none if that is less."""
        least = self.least_bytes
        if least > most_bytes:
            return []
        rungs = math.ceil(math.log(most_bytes / least) / math.log(_RUNG))
        return sorted({*(math.floor(least * _RUNG**rung) for rung in range(rungs)), most_bytes})

    @property
    def least_bytes(self) -> int:
        """The least memory that any operator can do with."""
        return min(self.least_of(candidate) for candidate in self.candidates)

    def least_of(self, candidate: Candidate) -> int:
        """The least memory that an operator can do with."""
        try:
            candidate.arranged(1, candidate.settings[0])
        except BudgetError as error:
            if error.least_bytes is None:
                raise
            return error.least_bytes
        return 1

    def _ranked(self, candidates: Iterable[Candidate], memory_bytes: int) -> list[Prediction]:
        """The best setting of each candidate that fits the memory, the fastest first."""
        best = (self._best(each, memory_bytes) for each in candidates)
        return sorted((each for each in best if each is not None), key=lambda choice: -choice.rate)

    def _best(self, candidate: Candidate, memory_bytes: int) -> Prediction | None:
        """A candidate's fastest setting; None if it does not fit the memory."""
        return max(self._tries(candidate, memory_bytes), key=lambda tried: tried.rate, default=None)

    def _settings(self, memory_bytes: int) -> list[Prediction]:
        """All operators that can do with a memory, with all of their options."""
        return [tried for candidate in self.candidates for tried in self._tries(candidate, memory_bytes)]

    def _tries(self, candidate: Candidate, memory_bytes: int) -> list[Prediction]:
        """One operator in a memory, with all of its options that fit."""
        key = candidate.name, memory_bytes
        if key not in self._tried:
            tried = (self._predicted(candidate, memory_bytes, options) for options in candidate.settings)
            self._tried[key] = [each for each in tried if each is not None]
        return self._tried[key]

    def _predicted(self, candidate: Candidate, memory_bytes: int, options: Options) -> Prediction | None:
        """What is expected of an operator with some options; None if they need more memory."""
        try:
            model = candidate.arranged(memory_bytes, options).model
        except BudgetError:
            return None
        return predict(candidate.name, model, self.workload, self.machine, memory_bytes=memory_bytes, options=options)

    def _sustains(self, rate: float, memory_bytes: int, setting: Prediction) -> Prediction | None:
        """A setting in another memory, if it sustains a rate there."""
        candidate = next(each for each in self.candidates if each.name == setting.operator)
        predicted = self._predicted(candidate, memory_bytes, setting.options)
        return predicted if predicted is not None and predicted.rate >= rate else None

    def _fastest(self, memory_bytes: int) -> float:
        """The greatest rate that there is in a memory; 0 if it is too small for all."""
        return max((tried.rate for tried in self._settings(memory_bytes)), default=0.0)

    def _too_little(self, memory_bytes: int) -> BudgetError:
        least, name = min((self.least_of(candidate), candidate.name) for candidate in self.candidates)
        return BudgetError(
            f"a budget of {memory_bytes:,} bytes is too small for any operator: {name} needs the least here, "
            f"{least:,} bytes ({format_bytes(least)}). Raise memory to that.",
            least_bytes=least,
        )


def _latency(prediction: Prediction) -> tuple[float, float]:
    return prediction.median_latency_s, prediction.worst_latency_s


def _steps(low: int, high: int) -> Iterator[int]:
    """Memories from one to another, each a little more than the one before."""
    memory = low
    while memory < high:
        yield memory
        memory = max(math.floor(memory * _STEP), memory + 1)
    yield high
