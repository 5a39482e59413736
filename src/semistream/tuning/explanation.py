"""Explanation: the operator chosen for a join, its expected performance, and what would change the choice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from semistream.budget import format_bytes
from semistream.costs.prediction import Prediction
from semistream.errors import InvalidArgument
from semistream.relation.describe import html_table
from semistream.tuning.alternatives import changes
from semistream.tuning.cache_curve import CachePoint
from semistream.tuning.tuner import Tuner
from semistream.tuning.wording import asked_text, described, enough_text, latency_text, pace_text, rate_text

_NEARLY = 0.99  # share of the maximum rate that counts as nearly reaching it


@dataclass(frozen=True)
class CurvePoint:
    """Operator chosen for a memory size, with its expected rate and hit rate."""

    memory_bytes: int
    operator: str
    rate: float
    hit_rate: float
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, repr=False)
class Explanation:
    """The operator chosen for a join in a memory, its predicted performance, and what would change the choice.

    `explain` returns one. ``str()`` gives a report for people, `as_dict` the same facts for JSON. All rates and
    latencies are predictions; docs/tuning.md shows how they compare with measured ones.

    Parameters
    ----------
    machine : str
        Name of the machine whose costs were used.
    calibrated : bool
        True if these costs were given or measured, False if they are defaults.
    memory_bytes : int
        The memory budget, in bytes.
    rate : float or None
        The requested rate in tuples per second, if any.
    choice : Prediction
        The chosen operator with its options, rate in tuples per second, hit rate, and latencies in seconds.
    reason : str
        The reason for the choice.
    parts : mapping of str to int
        Bytes of each part of the operator's memory.
    alternatives : tuple of Prediction
        The best setting of each other operator that fits in the memory, fastest first.
    refused : mapping of str to int
        Operators that need more memory, with the least bytes they need.
    target : str or None
        A sentence on the requested rate: sustained or, if not, what it needs. None without a rate.
    changes : tuple of str
        Changes that would lead to another choice.
    curve : tuple of CurvePoint
        The choice for other memory sizes.
    cache_curve : tuple of CachePoint
        Hit rates of a cache in these memory sizes, even if none is chosen.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from semistream import Relation, explain
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numbers = Relation.build(pa.table({"k": range(10_000), "v": range(10_000)}), f"{folder}/r", key="k")
    ...     explanation = explain(numbers, zipf=1.0, memory="1MB", rate=50_000)
    >>> explanation.target
    '50,000 tuples/s: sustained; needs only ...'
    >>> sum(explanation.parts.values())
    1000000

    References
    ----------
    docs/tuning.md; MESH 3.3 (the two tuning problems).
    """

    machine: str
    calibrated: bool
    memory_bytes: int
    rate: float | None
    choice: Prediction
    reason: str
    parts: Mapping[str, int]
    alternatives: tuple[Prediction, ...]
    refused: Mapping[str, int]
    target: str | None
    changes: tuple[str, ...]
    curve: tuple[CurvePoint, ...]
    cache_curve: tuple[CachePoint, ...] = ()

    @classmethod
    def of(
        cls, tuner: Tuner, memory_bytes: int, *, calibrated: bool, most_bytes: int, operator: str | None = None
    ) -> Explanation:
        """Explain the choice of ``tuner`` for a memory; bytes beyond ``most_bytes`` are of no use.

        With ``operator``, the choice is already made.
        """
        choice = (operator and tuner.best_of(operator, memory_bytes)) or tuner.chosen(memory_bytes)
        choices = tuner.choices(memory_bytes)
        candidates = {candidate.name: candidate for candidate in tuner.candidates}
        able = {each.operator for each in choices}
        most = max(most_bytes, memory_bytes)
        return cls(
            machine=tuner.machine.name,
            calibrated=calibrated,
            memory_bytes=memory_bytes,
            rate=tuner.workload.rate,
            choice=choice,
            reason=_reason(choice, choices[0], len(choices), holds=tuner.first),
            parts=candidates[choice.operator].arranged(memory_bytes, choice.options).parts,
            alternatives=tuple(each for each in choices if each.operator != choice.operator),
            refused={name: tuner.least_of(each) for name, each in candidates.items() if name not in able},
            target=_target(tuner, choice, most),
            changes=tuple(changes(tuner, choice, most)),
            curve=tuple(_curve(tuner, memory_bytes, most)),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values for JSON; unbounded numbers become None."""
        return {
            "machine": self.machine,
            "calibrated": self.calibrated,
            "memory_bytes": self.memory_bytes,
            "rate": self.rate,
            "choice": _plain(self.choice),
            "reason": self.reason,
            "parts": dict(self.parts),
            "alternatives": [_plain(other) for other in self.alternatives],
            "refused": dict(self.refused),
            "target": self.target,
            "changes": list(self.changes),
            "curve": [
                {
                    "memory_bytes": point.memory_bytes,
                    "operator": point.operator,
                    "options": dict(point.options),
                    "rate": _finite(point.rate),
                    "hit_rate": point.hit_rate,
                }
                for point in self.curve
            ],
            "cache_curve": [asdict(point) for point in self.cache_curve],
        }

    def __str__(self) -> str:
        choice = self.choice
        lines = [
            f"{described(choice)} in {format_bytes(self.memory_bytes)}: {self.reason}",
            f"  rate      {pace_text(choice)}",
            f"  latency   {latency_text(choice)}",
            f"  hit rate  {choice.hit_rate:.1%}",
            f"  machine   {self.machine_text}",
        ]
        if self.target:
            lines.append(f"  target    {self.target}")
        lines.append("memory")
        lines += [f"  {name:<14} {format_bytes(nbytes):>9}" for name, nbytes in self.parts.items()]
        if self.alternatives or self.refused:
            lines.append("alternatives")
        lines += [f"  {described(other):<28} {rate_text(other.rate)}" for other in self.alternatives]
        lines += [f"  {name:<28} needs {enough_text(least)}" for name, least in self.refused.items()]
        if self.changes:
            lines += ["what would change the choice", *(f"  {change}" for change in self.changes)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        chosen = [(described(self.choice), rate_text(self.choice.rate), f"chosen: {self.reason}")]
        others = [(described(other), rate_text(other.rate), "") for other in self.alternatives]
        refused = [(name, "", f"needs {enough_text(least)}") for name, least in self.refused.items()]
        title = self.target or f"in {format_bytes(self.memory_bytes)}"
        return html_table(title, ["operator", "rate", ""], [*chosen, *others, *refused])

    @property
    def machine_text(self) -> str:
        """Source of the costs: a measured machine, or defaults with the command that measures this one."""
        if self.calibrated:
            return self.machine
        return f"{self.machine}: no profile of this machine and disk; create one with `semistream calibrate --on R`"


def require_rate(rate: float | None) -> float | None:
    """Return ``rate``, or raise an error unless it is None or a finite number above 0."""
    if rate is not None and not (rate > 0 and math.isfinite(rate)):
        raise InvalidArgument(f"rate is {rate}; give tuples per second, a finite number above 0, or leave it out.")
    return rate


def _reason(choice: Prediction, fastest: Prediction, operators: int, *, holds: str | None) -> str:
    if choice.operator == holds:
        return "all of R fits in this memory"
    if operators == 1:
        return "the only operator that fits in this memory"
    if choice is fastest:
        return f"fastest of the {operators} operators that fit in this memory"
    return f"nearly as fast as {fastest.operator}, and adapts when the stream changes"


def _target(tuner: Tuner, choice: Prediction, most_bytes: int) -> str | None:
    """Describe whether the requested rate is sustained and, if not, the memory it needs or the maximum rate."""
    rate = tuner.workload.rate
    if rate is None:
        return None
    least = tuner.least_memory(rate, most_bytes)
    if choice.rate >= rate:
        spare = f"; needs only {enough_text(least.memory_bytes)}" if least is not None else ""
        return f"{asked_text(rate)}: sustained{spare}"
    given = f"{format_bytes(choice.memory_bytes)} gives {rate_text(choice.rate)}"
    if least is not None:
        return f"{asked_text(rate)}: needs at least {enough_text(least.memory_bytes)} ({described(least)}); {given}"
    rungs = [tuner.best_rate(memory) for memory in tuner.ladder(most_bytes)]
    most = max(rungs, key=lambda each: each.rate)
    nearly = next(each for each in rungs if each.rate >= _NEARLY * most.rate)
    return (
        f"{asked_text(rate)}: out of reach here; the maximum is {rate_text(most.rate)}, bound by the {most.bound_by}, "
        f"and {enough_text(nearly.memory_bytes)} nearly gives it; {given}. "
        "Shed load, or split R between workers by key range."
    )


def _curve(tuner: Tuner, memory_bytes: int, most_bytes: int) -> Iterator[CurvePoint]:
    for memory in sorted({*tuner.ladder(most_bytes), memory_bytes}):
        best = tuner.chosen(memory)
        yield CurvePoint(memory, best.operator, best.rate, best.hit_rate, best.options)


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
