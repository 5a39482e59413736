"""Changes that would lead to another operator: less or more memory, a latency goal, another key skew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from semistream.budget import format_bytes
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.prediction import Prediction
from semistream.tuning.tuner import Tuner
from semistream.tuning.wording import asked_text, described, enough_text, latency_text, rate_text

_SKEWS = (0.0, 0.5, 1.0, 1.5)
_WORTH_MORE = 1.1  # speed-up from which more memory is said to help
_SOONER = 0.5  # share of the latency that another choice must stay below to be named
_CLOSE = 1.06  # precision, as a ratio, with which a change between two memory sizes is located


def changes(tuner: Tuner, choice: Prediction, most_bytes: int) -> Iterator[str]:
    """Yield lines on what would lead to another choice, and whether more memory, up to ``most_bytes``, would help."""
    yield from _less_memory(tuner, choice)
    yield from _more_memory(tuner, choice, most_bytes)
    yield from _latency(tuner, choice)
    yield from _skew(tuner, choice)


def _less_memory(tuner: Tuner, choice: Prediction) -> Iterator[str]:
    rungs = [memory for memory in tuner.ladder(choice.memory_bytes) if memory < choice.memory_bytes]
    if found := _boundary(tuner, choice, rungs[::-1]):
        same_bytes, other = found
        yield f"below {format_bytes(same_bytes)}: {described(other)}, {rate_text(other.rate)}"


def _more_memory(tuner: Tuner, choice: Prediction, most_bytes: int) -> Iterator[str]:
    """Yield nothing for an unbounded rate: R is all in memory, and the processor costs are unknown."""
    rungs = [memory for memory in tuner.ladder(most_bytes) if memory > choice.memory_bytes]
    if (found := _boundary(tuner, choice, rungs)) and math.isfinite(found[1].rate):
        other = found[1]
        yield f"from {enough_text(other.memory_bytes)}: {described(other)}, {rate_text(other.rate)}"
    more_bytes = min(2 * choice.memory_bytes, most_bytes)
    more = tuner.chosen(more_bytes)
    if more_bytes < _WORTH_MORE * choice.memory_bytes or math.isinf(more.rate):
        return
    if more.rate >= _WORTH_MORE * choice.rate:
        yield f"{format_bytes(more_bytes)} would give {rate_text(more.rate)} ({described(more)})"
    else:
        yield f"more memory would hardly help: {format_bytes(more_bytes)} gives {rate_text(more.rate)}"


def _latency(tuner: Tuner, choice: Prediction) -> Iterator[str]:
    """Yield the setting with the lowest latency at the rate, if it more than halves the median or worst latency."""
    rate = tuner.workload.rate
    least = None if rate is None else tuner.least_latency(rate, choice.memory_bytes)
    if rate is None or least is None:
        return
    at_median = least.median_latency_s < _SOONER * choice.median_latency_s
    if at_median or least.worst_latency_s < _SOONER * choice.worst_latency_s:
        memory = enough_text(least.memory_bytes)
        yield f"for the lowest latency at {asked_text(rate)}: {described(least)} in {memory}, {latency_text(least)}"


def _skew(tuner: Tuner, choice: Prediction) -> Iterator[str]:
    keys = max(round(tuner.workload.frequencies.num_keys), 1)
    tried: list[tuple[float, Prediction]] = []
    for exponent in _SKEWS:
        workload = replace(tuner.workload, frequencies=KeyFrequencies.zipf(exponent, keys))
        tried.append((exponent, replace(tuner, workload=workload).chosen(choice.memory_bytes)))
    for kind, group in groupby(tried, key=lambda each: _kind(each[1])):
        if kind == _kind(choice):
            continue
        exponents, others = zip(*group, strict=True)
        skews = " or ".join(filter(None, [", ".join(f"{each:g}" for each in exponents[:-1]), f"{exponents[-1]:g}"]))
        yield f"for a Zipf exponent of {skews}: {_kind_text(kind, choice)}, {_rates_text(others)}"


def _boundary(tuner: Tuner, choice: Prediction, memories: Sequence[int]) -> tuple[int, Prediction] | None:
    """Find the first of ``memories``, sorted by distance from the given one, that leads to another choice.

    Return a memory close to the change that still keeps the choice, and the other choice; None if it never changes.
    """
    for same, memory in pairwise([choice.memory_bytes, *memories]):
        if (other := _other(tuner, choice, memory)) is not None:
            return _closer(tuner, choice, same, other)
    return None


def _closer(tuner: Tuner, choice: Prediction, same: int, other: Prediction) -> tuple[int, Prediction]:
    """Narrow the interval in which the choice changes, by bisection on a log scale, until both ends are close."""
    while max(same, other.memory_bytes) > _CLOSE * min(same, other.memory_bytes) + 1:
        middle = round(math.sqrt(same * other.memory_bytes))
        if (found := _other(tuner, choice, middle)) is None:
            same = middle
        else:
            other = found
    return same, other


def _other(tuner: Tuner, choice: Prediction, memory_bytes: int) -> Prediction | None:
    """Return the choice in a memory if it is another operator: the usual one, or one faster by its margin."""
    best = tuner.chosen(memory_bytes)
    if best.operator == choice.operator:
        return None
    rates = {each.operator: each.rate for each in tuner.choices(memory_bytes)}
    same_rate = rates.get(choice.operator, 0.0)
    return best if best.operator == tuner.usual or best.rate > tuner.margin(best.operator) * same_rate else None


def _kind(choice: Prediction) -> tuple[str, bool]:
    return choice.operator, choice.options.get("cache_share", 0.0) > 0


def _kind_text(kind: tuple[str, bool], choice: Prediction) -> str:
    operator, cached = kind
    if cached:
        return f"{operator} with a cache"
    return f"{operator} without a cache" if operator == choice.operator else operator


def _rates_text(predictions: Sequence[Prediction]) -> str:
    rates = [prediction.rate for prediction in predictions]
    least, most = rate_text(min(rates)), rate_text(max(rates))
    return least if least == most else f"{least.removesuffix(' tuples/s')} to {most}"
