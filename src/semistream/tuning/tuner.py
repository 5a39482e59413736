"""Tuner: finds the best operator and options for a workload, within a memory or at a rate."""

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
"""Speed-up over the usual operator from which an operator akin to it is chosen instead."""
SURELY = 1.5
"""Speed-up from which an unrelated operator is chosen: its prediction may be wrong by this factor."""

_RUNG = 1.3  # ratio of neighbouring memories on the ladder
_STEP = 1.02  # ratio of the memories tried between two rungs
_DIP = 0.7  # with more memory, a rate never falls below this share of an earlier one

Options = Mapping[str, float]


class Arranged(NamedTuple):
    """An operator's model in a memory, and the bytes of each part of that memory."""

    model: OperatorModel
    parts: Mapping[str, int]


class Candidate(Protocol):
    """An operator to choose from."""

    @property
    def name(self) -> str:
        """The operator's name."""

    @property
    def settings(self) -> Sequence[Options]:
        """Options to choose from; none needs less memory than the first."""

    def arranged(self, memory_bytes: int, options: Options) -> Arranged:
        """Return the model in a memory; raise `BudgetError` with the least sufficient bytes if it is too small."""


@dataclass(frozen=True)
class Tuner:
    """Solver of both problems of MESH 3.3, the best rate in a memory and the least memory for a rate, and of latency.

    It covers all operators and their options. Each operator's model has its exact memory layout. Options are few, so
    all of them are tried. Memories are tried on a ladder, from the least that is enough for any operator, each 30 %
    larger than the previous one. Predictions are cached, so repeated questions cost nothing.

    Rates grow with the memory, but not strictly: an operator that gains room for one more buffer may have less room for
    tuples, and needs a few percent more memory to make up for it. `least_memory` therefore searches in steps of 2 %,
    from below the first sufficient rung. It finds the least memory up to the size of these steps, and may miss a
    sufficient memory that becomes insufficient again with a few more bytes.

    `chosen` returns the ``usual`` operator, if there is one, unless another is clearly faster. An operator of
    ``last_resort`` is chosen only if the memory is too small for all others. The operator ``first``, if given, is
    chosen wherever it fits: it holds all of R, and so does not depend on the stream. Operators ``akin`` to the usual
    one run the same code, so their models have the same errors; all others must be predicted to be much faster.
    """

    workload: Workload
    machine: Machine
    candidates: Sequence[Candidate]
    usual: str | None = None
    last_resort: frozenset[str] = frozenset()
    first: str | None = None
    akin: frozenset[str] = frozenset()
    _tried: dict[tuple[str, int], list[Prediction]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def choices(self, memory_bytes: int) -> list[Prediction]:
        """Return the best setting of each operator that fits in a memory, fastest first."""
        return self._ranked(self.candidates, memory_bytes)

    def best_rate(self, memory_bytes: int) -> Prediction:
        """Return the setting with the highest rate in a memory; raise `BudgetError` if no operator fits."""
        choices = self.choices(memory_bytes)
        if not choices:
            raise self._too_little(memory_bytes)
        return choices[0]

    def chosen(self, memory_bytes: int) -> Prediction:
        """Return the usual operator at its best, or the fastest one; raise `BudgetError` if no operator fits.

        The fastest is returned if it is clearly faster, or if only it sustains the rate of the workload.
        """
        if self.first is not None and (held := self.best_of(self.first, memory_bytes)) is not None:
            return held
        choices = self._contenders(memory_bytes) or [self.best_rate(memory_bytes)]
        choices = [choice for choice in choices if choice.operator not in self.last_resort] or choices
        usual = next((choice for choice in choices if choice.operator == self.usual), None)
        if usual is None:
            return choices[0]
        faster = [choice for choice in choices if choice.rate > self.margin(choice.operator) * usual.rate]
        if usual.rate < (self.workload.rate or 0.0) <= choices[0].rate:
            return choices[0]
        return faster[0] if faster else usual

    def best_of(self, operator: str, memory_bytes: int) -> Prediction | None:
        """Return the best setting of an operator in a memory; None if it does not fit, or is no candidate."""
        found = next((each for each in self.candidates if each.name == operator), None)
        return None if found is None else self._best(found, memory_bytes)

    def _contenders(self, memory_bytes: int) -> list[Prediction]:
        """Return the choices without operators that cannot beat the usual one by their margin even without reads.

        With a requested rate, all operators compete: one that sustains the rate is chosen at any speed-up.
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
        """Return the predicted speed-up over the usual operator from which another one is chosen."""
        return CLEARLY if self.usual is None or operator in self.akin else SURELY

    def least_memory(self, rate: float, most_bytes: int) -> Prediction | None:
        """Return the setting with the least memory, up to ``most_bytes``, that sustains ``rate`` tuples per second.

        None if no memory on the ladder is enough. A smaller sufficient memory could only lie between two insufficient
        rungs, and its rate would have to fall by more than `_DIP` before the memory found.
        """
        rungs = self.ladder(most_bytes)
        first = next((number for number, memory in enumerate(rungs) if self._fastest(memory) >= rate), None)
        if first is None:
            return None
        start = max(first - 1, 0)
        if start and self._fastest(rungs[start]) >= _DIP * rate:
            start -= 1  # memories below this rung may be sufficient
        promising = [tried for tried in self._settings(rungs[first]) if tried.rate >= _DIP * rate]
        return next(
            self.best_rate(memory)
            for memory in _steps(rungs[start], rungs[first])
            if any(self._sustains(rate, memory, tried) for tried in promising)
        )

    def least_latency(self, rate: float, most_bytes: int) -> Prediction | None:
        """Return the setting with the lowest latency at a rate, in at most ``most_bytes``; None if none sustains it.

        Settings are compared by median latency, then by worst latency. With less memory fewer tuples wait for each
        other, so the memory of the best settings on the ladder is then lowered in small steps.
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
        """Return memories to try, from the least that fits any operator to ``most_bytes``; empty if that is less."""
        least = self.least_bytes
        if least > most_bytes:
            return []
        rungs = math.ceil(math.log(most_bytes / least) / math.log(_RUNG))
        return sorted({*(math.floor(least * _RUNG**rung) for rung in range(rungs)), most_bytes})

    @property
    def least_bytes(self) -> int:
        """Bytes needed by the operator with the smallest minimum."""
        return min(self.least_of(candidate) for candidate in self.candidates)

    def least_of(self, candidate: Candidate) -> int:
        """Return the least memory that an operator needs."""
        try:
            candidate.arranged(1, candidate.settings[0])
        except BudgetError as error:
            if error.least_bytes is None:
                raise
            return error.least_bytes
        return 1

    def _ranked(self, candidates: Iterable[Candidate], memory_bytes: int) -> list[Prediction]:
        """Return the best setting of each candidate that fits in the memory, fastest first."""
        best = (self._best(each, memory_bytes) for each in candidates)
        return sorted((each for each in best if each is not None), key=lambda choice: -choice.rate)

    def _best(self, candidate: Candidate, memory_bytes: int) -> Prediction | None:
        """Return a candidate's fastest setting; None if none fits in the memory."""
        return max(self._tries(candidate, memory_bytes), key=lambda tried: tried.rate, default=None)

    def _settings(self, memory_bytes: int) -> list[Prediction]:
        """Predict all operators with all options that fit in a memory."""
        return [tried for candidate in self.candidates for tried in self._tries(candidate, memory_bytes)]

    def _tries(self, candidate: Candidate, memory_bytes: int) -> list[Prediction]:
        """Predict one operator with all of its options that fit in a memory, once."""
        key = candidate.name, memory_bytes
        if key not in self._tried:
            tried = (self._predicted(candidate, memory_bytes, options) for options in candidate.settings)
            self._tried[key] = [each for each in tried if each is not None]
        return self._tried[key]

    def _predicted(self, candidate: Candidate, memory_bytes: int, options: Options) -> Prediction | None:
        """Predict an operator with some options; None if they need more memory."""
        try:
            model = candidate.arranged(memory_bytes, options).model
        except BudgetError:
            return None
        return predict(candidate.name, model, self.workload, self.machine, memory_bytes=memory_bytes, options=options)

    def _sustains(self, rate: float, memory_bytes: int, setting: Prediction) -> Prediction | None:
        """Predict a setting in another memory; None unless it sustains the rate there."""
        candidate = next(each for each in self.candidates if each.name == setting.operator)
        predicted = self._predicted(candidate, memory_bytes, setting.options)
        return predicted if predicted is not None and predicted.rate >= rate else None

    def _fastest(self, memory_bytes: int) -> float:
        """Return the highest rate in a memory; 0 if no operator fits."""
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
    """Yield memories from ``low`` to ``high`` in small steps."""
    memory = low
    while memory < high:
        yield memory
        memory = max(math.floor(memory * _STEP), memory + 1)
    yield high
