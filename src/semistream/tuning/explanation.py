"""Explanation: which operator is chosen for a join, what is expected of it, and what would change that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from semistream.budget import format_bytes
from semistream.errors import BudgetError, InvalidArgument
from semistream.tuning.frequencies import KeyFrequencies
from semistream.tuning.prediction import Prediction
from semistream.tuning.tuner import Candidate, Tuner

_CURVE_POINTS = 24
_MORE = 8  # times the memory, up to which the curve goes at least
_SKEWS = (0.0, 0.5, 1.0, 1.5)
_WORTH_MORE = 1.1  # times the rate, from which more memory is said to help


@dataclass(frozen=True)
class CurvePoint:
    """What the best operator is expected to do with a memory."""

    memory_bytes: int
    operator: str
    rate: float
    hit_rate: float


@dataclass(frozen=True)
class Explanation:
    """The ``choice`` for a workload in ``memory_bytes`` on a ``machine``, and how it splits that into ``parts``.

    ``alternatives`` are the other operators at their best, the fastest first; ``refused`` are those that need more
    memory, with the least that they need. ``target`` says, if a rate is asked for, whether it is kept up with, and if
    not, what would be needed. ``changes`` are what would lead to another choice, and ``curve`` what other memories
    would give.
    """

    machine: str
    calibrated: bool
    memory_bytes: int
    rate: float | None
    choice: Prediction
    parts: Mapping[str, int]
    alternatives: tuple[Prediction, ...]
    refused: Mapping[str, int]
    target: str | None
    changes: tuple[str, ...]
    curve: tuple[CurvePoint, ...]

    @classmethod
    def of(cls, tuner: Tuner, memory_bytes: int, *, calibrated: bool, most_bytes: int) -> Explanation:
        """Explain what ``tuner`` chooses for a memory; more than ``most_bytes`` are of no use."""
        choices = tuner.choices(memory_bytes)
        choice = choices[0] if choices else tuner.best_rate(memory_bytes)  # which says what is missing
        chosen = next(each for each in tuner.candidates if each.name == choice.operator)
        curve = tuple(_curve(tuner, memory_bytes, most_bytes))
        return cls(
            machine=tuner.machine.name,
            calibrated=calibrated,
            memory_bytes=memory_bytes,
            rate=tuner.workload.rate,
            choice=choice,
            parts=chosen.arranged(memory_bytes, choice.options).parts,
            alternatives=tuple(choices[1:]),
            refused=dict(_refused(tuner.candidates, memory_bytes)),
            target=_target(tuner, choice, most_bytes),
            changes=(*_changes_by_memory(curve, choice), *_changes_by_skew(tuner, choice)),
            curve=curve,
        )

    def as_dict(self) -> dict[str, Any]:
        """All of it in plain values, for JSON: what has no bound is None."""
        return {
            "machine": self.machine,
            "calibrated": self.calibrated,
            "memory_bytes": self.memory_bytes,
            "rate": self.rate,
            "choice": _plain(self.choice),
            "parts": dict(self.parts),
            "alternatives": [_plain(other) for other in self.alternatives],
            "refused": dict(self.refused),
            "target": self.target,
            "changes": list(self.changes),
            "curve": [
                {
                    "memory_bytes": point.memory_bytes,
                    "operator": point.operator,
                    "rate": _finite(point.rate),
                    "hit_rate": point.hit_rate,
                }
                for point in self.curve
            ],
        }

    def __str__(self) -> str:
        choice = self.choice
        lines = [
            f"{described(choice)} in {format_bytes(self.memory_bytes)}",
            f"  rate      {rate_text(choice.rate)}, bound by the {choice.bound_by}",
            f"  latency   {seconds_text(choice.median_latency_s)} median, {seconds_text(choice.worst_latency_s)} worst",
            f"  hit rate  {choice.hit_rate:.1%}",
            f"  machine   {self.machine_text}",
        ]
        if self.target:
            lines.append(f"  target    {self.target}")
        lines.append("memory")
        lines += [f"  {name:<14} {format_bytes(nbytes):>9}" for name, nbytes in self.parts.items()]
        lines.append("alternatives")
        lines += [f"  {described(other):<28} {rate_text(other.rate)}" for other in self.alternatives]
        lines += [f"  {name:<28} needs {format_bytes(least)}" for name, least in self.refused.items()]
        if self.changes:
            lines += ["what would change the choice", *(f"  {change}" for change in self.changes)]
        return "\n".join(lines)

    @property
    def machine_text(self) -> str:
        """Where the costs come from."""
        if self.calibrated:
            return self.machine
        return f"{self.machine}: no profile of this machine and disk; `semistream calibrate --on PATH` makes one"


def described(prediction: Prediction) -> str:
    """An operator with its options, for a person."""
    share = prediction.options.get("cache_share", 0.0)
    return f"{prediction.operator}, cache {share:.1%}" if share else prediction.operator


def rate_text(rate: float) -> str:
    """Tuples per second, for a person."""
    return f"{rate:,.0f} tuples/s" if math.isfinite(rate) else "no bound"


def seconds_text(seconds: float) -> str:
    """A time, for a person."""
    if math.isinf(seconds):
        return "no bound"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1 or unit == "ms":
            return f"{seconds * factor:.3g} {unit}"
    return ""


def _target(tuner: Tuner, choice: Prediction, most_bytes: int) -> str | None:
    """Whether the rate that is asked for is kept up with, or what comes nearest."""
    rate = tuner.workload.rate
    if rate is None:
        return None
    memory = format_bytes(choice.memory_bytes)
    least = tuner.least_memory(rate, max(most_bytes, choice.memory_bytes))
    if choice.rate >= rate:
        spare = f"; {format_bytes(least.memory_bytes)} would do" if least is not None else ""
        return f"{rate_text(rate)} are kept up with{spare}"
    if least is not None:
        needs = f"needs at least {format_bytes(least.memory_bytes)} here ({described(least)})"
        return f"{rate_text(rate)} {needs}; {memory} gives {rate_text(choice.rate)}"
    most = tuner.best_rate(max(most_bytes, choice.memory_bytes))
    return (
        f"{rate_text(rate)} cannot be reached here: {format_bytes(most.memory_bytes)} give {rate_text(most.rate)}, "
        f"bound by the {most.bound_by}; {memory} gives {rate_text(choice.rate)}. Shed load, or divide R by key range."
    )


def _curve(tuner: Tuner, memory_bytes: int, most_bytes: int) -> Iterator[CurvePoint]:
    least, most = tuner.least_bytes, max(most_bytes, _MORE * memory_bytes)
    for point in range(_CURVE_POINTS + 1):
        memory = round(least * (most / least) ** (point / _CURVE_POINTS))
        for best in tuner.choices(memory)[:1]:
            yield CurvePoint(memory, described(best), best.rate, best.hit_rate)


def _changes_by_memory(curve: Sequence[CurvePoint], choice: Prediction) -> Iterator[str]:
    """Where along the curve another operator is best, and whether more memory helps."""
    below = [point for point in curve if point.memory_bytes < choice.memory_bytes]
    above = [point for point in curve if point.memory_bytes > choice.memory_bytes]
    for points, word in ((below[::-1], "below"), (above, "above")):
        other = next((point for point in points if _operator(point) != choice.operator), None)
        if other is not None:
            yield f"{word} {format_bytes(other.memory_bytes)}: {other.operator}, {rate_text(other.rate)}"
    twice = next((point for point in above if point.memory_bytes >= 2 * choice.memory_bytes), None)
    if twice is not None and twice.rate >= _WORTH_MORE * choice.rate:
        yield f"{format_bytes(twice.memory_bytes)} would give {rate_text(twice.rate)} ({twice.operator})"
    elif twice is not None:
        yield f"more memory would hardly help: {format_bytes(twice.memory_bytes)} give {rate_text(twice.rate)}"


def _operator(point: CurvePoint) -> str:
    return point.operator.partition(",")[0]


def _changes_by_skew(tuner: Tuner, choice: Prediction) -> Iterator[str]:
    """What another distribution of the keys would lead to."""
    keys = max(round(tuner.workload.frequencies.num_keys), 1)
    for exponent in _SKEWS:
        workload = replace(tuner.workload, frequencies=KeyFrequencies.zipf(exponent, keys))
        best = replace(tuner, workload=workload).choices(choice.memory_bytes)[0]
        if described(best) != described(choice):
            yield f"with keys by Zipf {exponent:g}: {described(best)}, {rate_text(best.rate)}"


def _refused(candidates: Sequence[Candidate], memory_bytes: int) -> Iterator[tuple[str, int]]:
    for candidate in candidates:
        try:
            candidate.arranged(memory_bytes, candidate.settings[0])
        except BudgetError as error:
            if error.least_bytes is not None:
                yield candidate.name, error.least_bytes


def _plain(prediction: Prediction) -> dict[str, Any]:
    return {
        "operator": prediction.operator,
        "options": dict(prediction.options),
        "rate": _finite(prediction.rate),
        "bound_by": prediction.bound_by,
        "hit_rate": prediction.hit_rate,
        "median_latency_s": _finite(prediction.median_latency_s),
        "worst_latency_s": _finite(prediction.worst_latency_s),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def require_rate(rate: float | None) -> float | None:
    """Refuse a rate that is none."""
    if rate is not None and not (rate > 0 and math.isfinite(rate)):
        raise InvalidArgument(f"rate is {rate}; give tuples per second, a finite number above 0, or none at all.")
    return rate
