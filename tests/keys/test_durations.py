"""One notation of durations in conditions, windows, bands, pipeline files and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from semistream.cli.window.command import window_lengths
from semistream.errors import InvalidArgument, PipelineError
from semistream.joins.condition.where import Near, read_terms
from semistream.keys.duration_text import duration_seconds
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.yaml_file import make_spec
from semistream.windows import Band, WindowJoin
from semistream.windows.streams.event_time import EventTime
from semistream.windows.streams.lengths import WindowLength
from tests.pipelines.specs import changed

NS = Fraction(1, 10**9)
UNITS = {
    NS: ["ns", "nanosecond", "nanoseconds"],
    1000 * NS: ["us", "microsecond", "microseconds"],
    10**6 * NS: ["ms", "millisecond", "milliseconds"],
    Fraction(1): ["s", "sec", "secs", "second", "seconds"],
    Fraction(60): ["m", "min", "mins", "minute", "minutes"],
    Fraction(3600): ["h", "hr", "hrs", "hour", "hours"],
    Fraction(86_400): ["d", "day", "days"],
    Fraction(604_800): ["w", "week", "weeks"],
}
SPELT = [
    (f"{number}{space}{name}", Fraction(number) * seconds)
    for seconds, names in UNITS.items()
    for unit in names
    for number, space, name in [("1", " ", unit), ("30", "", unit), ("2", " ", unit.upper()), ("1.5", " ", unit)]
    if number != "1.5" or seconds > NS
]
TIME = EventTime.of(*[pa.schema([("at", pa.timestamp("ns"))])] * 2, "at")


def _where(text: str) -> Fraction:
    (near,) = read_terms(text)
    assert isinstance(near, Near)
    assert near.is_duration
    return near.distance


def _window(window: Any) -> Fraction:
    return WindowLength.pair(window, TIME)[0].length * NS


def _yaml(place: str) -> Callable[[str], Fraction]:
    def read(text: str) -> Fraction:
        found: Any = make_spec(changed(place, text)).model_dump()
        for part in place.split("."):
            found = found[int(part)] if part.isdigit() else found[part]
        return Fraction(parse_duration(found)).limit_denominator(10**10)

    return read


PLACES: dict[str, Callable[[str], Fraction | None]] = {
    "parser": duration_seconds,
    "where": lambda text: _where(f"abs(s.x - r.y) <= {text}"),
    "where, as an interval": lambda text: _where(f"abs(s.x - r.y) <= INTERVAL '{text}'"),
    "where, as an SQL interval": lambda text: _where(f"abs(s.x - r.y) <= INTERVAL {text}"),
    "window": _window,
    "lateness": lambda text: TIME.length(text, "lateness", least=0) * NS,
    "band": lambda text: Band("a", "b", text).distance,
    "--window": lambda text: _window(window_lengths(text)),
    "--window of a side": lambda text: _window(window_lengths(f"{text},5 days")),
    "every": _yaml("every"),
    "latency": _yaml("latency"),
    "retry_for": _yaml("steps.0.join.retry_for"),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_spelling_means_the_same_everywhere(place: str) -> None:
    for text, seconds in SPELT:
        assert PLACES[place](text) == seconds, text


@pytest.mark.parametrize("text", ["5 months", "1 year", "5", "minutes", "-5 s", "5 minutes ago", "1e3 s", ""])
def test_other_texts_are_no_durations_anywhere(text: str) -> None:
    assert duration_seconds(text) is None
    for place in ("every", "latency", "steps.0.join.retry_for"):
        with pytest.raises(PipelineError, match=r"is not a duration; write it like '500ms', '30s'.* or '1 week'"):
            make_spec(changed(place, text))
    for call in (lambda: _window(text), lambda: WindowJoin(*[pa.schema([("k", pa.int64())])] * 2, on="k", window=text)):
        with pytest.raises(InvalidArgument):
            call()


def test_a_pipelines_duration_is_above_zero_and_below_a_century() -> None:
    for text in ("0 s", "5300 weeks"):
        with pytest.raises(InvalidArgument, match="is not a duration above zero and of at most 100 years"):
            parse_duration(text)


def test_a_timedelta_is_a_duration() -> None:
    assert duration_seconds(timedelta(days=-1, microseconds=7)) == -86_400 + Fraction(7, 10**6)
