"""Explanations: targets, changes of the choice, and complete JSON."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from semistream.budget import parse_bytes
from semistream.errors import BudgetError, InvalidArgument
from semistream.tuning.explanation import CurvePoint, Explanation, require_rate
from semistream.tuning.tuner import Options, Tuner
from semistream.tuning.wording import asked_text, described, enough_text, pace_text, rate_text, seconds_text
from tests.tuning.candidates import Known, tuner

MB = 10**6


def proportional(memory: int, _: Options) -> float:
    """A tuple for each kilobyte."""
    return memory / 1000


def up_to_5000(memory: int, _: Options) -> float:
    return min(memory / 1000, 5000.0)


def explained(chooser: Tuner, memory_bytes: int = 2 * MB, most_bytes: int = 100 * MB) -> Explanation:
    return Explanation.of(chooser, memory_bytes, calibrated=True, most_bytes=most_bytes)


def test_a_sustained_rate_and_the_least_memory_for_it() -> None:
    explanation = explained(tuner(Known("one", 1000, proportional), rate=500.0))
    found = re.fullmatch(r"500 tuples/s: sustained; needs only (.* kB)", explanation.target or "")
    assert found
    assert 500_000 <= parse_bytes(found[1].replace(" ", "")) <= 511_000


def test_a_rate_that_needs_more_memory_is_told_how_much_at_least() -> None:
    explanation = explained(tuner(Known("one", 1000, proportional), rate=50_000.0))
    found = re.fullmatch(
        r"50,000 tuples/s: needs at least (.* MB) \(one\); 2 MB gives 2,000 tuples/s", explanation.target or ""
    )
    assert found
    assert 50 * MB <= parse_bytes(found[1].replace(" ", "")) <= 51.1 * MB


def test_a_rate_that_no_memory_gives_gets_the_nearest_one() -> None:
    explanation = explained(tuner(Known("one", 1000, up_to_5000), rate=50_000.0))
    assert explanation.target is not None
    assert explanation.target.startswith("50,000 tuples/s: out of reach here; the maximum is 5,000 tuples/s, bound by")
    found = re.search(r"and (.* MB) nearly gives it; 2 MB gives 2,000 tuples/s\. Shed load", explanation.target)
    assert found
    assert 4.9 * MB <= parse_bytes(found[1].replace(" ", "")) <= 1.31 * 5 * MB


def test_without_a_rate_there_is_no_target() -> None:
    explanation = explained(tuner(Known("one", 1000, proportional)))
    assert explanation.target is None
    assert "target" not in str(explanation)


def test_a_memory_beyond_what_is_useful_is_explained_too() -> None:
    explanation = explained(tuner(Known("one", 1000, proportional), rate=1500.0), 2 * MB, most_bytes=1 * MB)
    assert explanation.target is not None
    assert "tuples/s: sustained" in explanation.target
    assert explanation.curve[-1].memory_bytes == 2 * MB


def test_a_memory_that_is_too_small_is_refused_with_the_least() -> None:
    with pytest.raises(BudgetError, match=r"one needs the least here, 1,000 bytes \(1 kB\)") as refused:
        explained(tuner(Known("one", 1000, proportional)), 999)
    assert refused.value.least_bytes == 1000


def test_alternatives_are_the_others_and_refused_those_that_need_more() -> None:
    chooser = tuner(
        Known("slow", 1000, lambda *_: 5.0),
        Known("fast", 1000, lambda *_: 50.0),
        Known("middle", 1000, lambda *_: 20.0),
        Known("large", 2 * MB + 1, lambda *_: 500.0),
    )
    explanation = explained(chooser)
    assert explanation.choice.operator == "fast"
    assert explanation.reason == "fastest of the 3 operators that fit in this memory"
    assert [other.operator for other in explanation.alternatives] == ["middle", "slow"]
    assert explanation.refused == {"large": 2 * MB + 1}
    assert "large                        needs 2.01 MB" in str(explanation)
    assert explanation.parts == {"all": 2 * MB}


def test_the_reason_of_a_choice() -> None:
    usual, other = Known("usual", 10, lambda *_: 100.0), Known("other", 10, lambda *_: 104.0)
    near = explained(tuner(usual, other, usual="usual"))
    assert near.choice.operator == "usual"
    assert near.reason == "nearly as fast as other, and adapts when the stream changes"
    assert [each.operator for each in near.alternatives] == ["other"]
    assert explained(tuner(usual)).reason == "the only operator that fits in this memory"


def test_the_curve_goes_from_the_least_memory_to_the_most_and_has_the_one_at_hand() -> None:
    chooser = tuner(Known("small", 1000, lambda *_: 10.0), Known("large", 5 * MB, proportional))
    curve = explained(chooser).curve
    memories = [point.memory_bytes for point in curve]
    assert memories == sorted(set(memories))
    assert (memories[0], memories[-1]) == (1000, 100 * MB)
    assert 2 * MB in memories
    assert all(point.operator == ("large" if point.memory_bytes >= 5 * MB else "small") for point in curve)
    rates = [proportional(point.memory_bytes, {}) if point.operator == "large" else 10.0 for point in curve]
    assert [point.rate for point in curve] == pytest.approx(rates)


# Changes of the choice


def changes(*known: Known, memory_bytes: int = 2 * MB, **options: Any) -> list[str]:
    explanation = explained(tuner(*known, **options), memory_bytes)
    assert len(set(explanation.changes)) == len(explanation.changes)
    return list(explanation.changes)


def between(text: str, pattern: str, least: float, most: float) -> None:
    """A memory in a text is where it should be."""
    found = re.fullmatch(pattern, text)
    assert found, text
    assert least <= parse_bytes(found[1].replace(" ", "")) <= most


def test_less_memory_that_leads_to_another_operator() -> None:
    """The boundary is found to within 6 %."""
    lines = changes(Known("small", 1000, lambda *_: 700.0), Known("large", 1000, proportional))
    between(lines[0], r"below (.* kB): small, 700 tuples/s", 700_000 / 1.05, 700_000 / 1.05 * 1.07)


def test_more_memory_that_leads_to_another_operator() -> None:
    lines = changes(Known("small", 1000, lambda *_: 20_000.0), Known("large", 30 * MB, proportional))
    between(lines[0], r"from (.* MB): large, .* tuples/s", 30 * MB, 30 * MB * 1.07)


def test_an_operator_that_is_better_by_a_trifle_is_no_change() -> None:
    ahead = Known("one", 1000, lambda memory, _: 1000.0 * (1.01 if memory > 1.5 * MB else 0.99))
    assert changes(ahead, Known("two", 1000, lambda *_: 1000.0)) == [
        "more memory would hardly help: 4 MB gives 1,010 tuples/s"
    ]


@pytest.mark.parametrize(
    ("rate", "line"),
    [
        (proportional, "4 MB would give 4,000 tuples/s (one)"),
        (lambda *_: 50.0, "more memory would hardly help: 4 MB gives 50 tuples/s"),
    ],
)
def test_whether_more_memory_helps(rate: Any, line: str) -> None:
    assert line in changes(Known("one", 1000, rate))


def test_useless_memory_and_unbounded_rates_are_not_mentioned() -> None:
    free_above = Known("fits", 150 * MB, lambda *_: math.inf)
    assert changes(Known("one", 1000, proportional), free_above, memory_bytes=99 * MB) == []
    free = Known("free", 50 * MB, lambda *_: math.inf)
    assert changes(Known("one", 1000, proportional), free, memory_bytes=40 * MB) == []


def test_what_answers_in_less_than_half_the_time() -> None:
    (line, *_) = [each for each in changes(Known("one", 1000, proportional), rate=500.0) if "latency" in each]
    found = re.fullmatch(r"for the lowest latency at 500 tuples/s: one in (.* kB), (.*) s median, (.*) s worst", line)
    assert found
    assert 500_000 <= parse_bytes(found[1].replace(" ", "")) <= 511_000
    assert float(found[2]) == pytest.approx(500_000 / 100 / 500, rel=0.03)
    assert not [each for each in changes(Known("one", 1000, proportional), rate=1500.0) if "latency" in each]


def test_the_skews_that_lead_to_another_choice_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Known` does not look at keys, so a choice that depends on them is made up."""
    chosen = Tuner.chosen
    known = [Known("flat", 1000, proportional), Known("skewed", 1000, proportional)]

    def by_skew(self: Tuner, memory_bytes: int) -> Any:
        choices = {each.operator: each for each in self.choices(memory_bytes)}
        return choices["skewed" if self.workload.frequencies.share(1) > 0.05 else "flat"]

    monkeypatch.setattr(Tuner, "chosen", by_skew)
    assert changes(*known)[-1] == "for a Zipf exponent of 1 or 1.5: skewed, 2,000 tuples/s"
    monkeypatch.setattr(Tuner, "chosen", chosen)
    assert not [line for line in changes(*known) if "Zipf" in line]


# JSON


@pytest.mark.parametrize("rate", [None, 500.0, 50_000.0])
def test_json_has_all_of_it_and_no_nan_or_infinity(rate: float | None) -> None:
    free = Known("free", 50 * MB, lambda *_: math.inf)
    explanation = explained(tuner(Known("one", 1000, proportional), free, rate=rate))
    found = json.loads(json.dumps(explanation.as_dict(), allow_nan=False))
    assert found == explanation.as_dict()
    assert found["choice"]["operator"] == "one"
    assert found["choice"]["rate"] == 2000.0
    assert found["rate"] == rate
    assert found["target"] == explanation.target
    assert found["refused"] == {"free": 50 * MB}
    assert found["changes"] == list(explanation.changes)
    assert [point["memory_bytes"] for point in found["curve"]] == [point.memory_bytes for point in explanation.curve]
    assert found["curve"][-1]["rate"] is None
    if rate == 50_000.0:
        assert found["choice"]["median_latency_s"] is None


def test_text_names_the_machine_and_how_to_measure_it() -> None:
    chooser = tuner(Known("one", 1000, proportional))
    measured = Explanation.of(chooser, 2 * MB, calibrated=True, most_bytes=MB)
    assert "machine   a second for each seek\n" in str(measured)
    guessed = Explanation.of(chooser, 2 * MB, calibrated=False, most_bytes=MB)
    assert "no profile of this machine and disk; create one with `semistream calibrate --on R`" in str(guessed)


# Words


def test_rates_are_rounded_down_and_memories_up() -> None:
    assert rate_text(18_799_999.0) == "18,700,000 tuples/s"
    assert rate_text(999.0) == "999 tuples/s"
    assert rate_text(0.0999) == "0.0999 tuples/s"
    assert rate_text(1000.0) == "1,000 tuples/s"
    assert asked_text(1_234_567.0) == "1,234,567 tuples/s"
    for nbytes in (1, 999, 1000, 1001, 99_999, 2_720_001, 10**12 + 1):
        assert nbytes <= parse_bytes(enough_text(nbytes).replace(" ", "")) <= nbytes * 1.01 + 1


def test_times_are_told_in_a_unit_that_fits() -> None:
    assert [seconds_text(seconds) for seconds in (0.0, 5e-6, 0.9999, 59.0, 999.9, 7200.0, 3.6e7)] == [
        "0 ms",
        "0.005 ms",
        "1 s",
        "59 s",
        "1,000 s",
        "2 h",
        "10,000 h",
    ]


def test_an_operator_is_described_with_its_cache() -> None:
    assert described(CurvePoint(MB, "engine", 1.0, 0.0, {"cache_share": 0.125})) == "engine, cache 12.5%"
    assert described(CurvePoint(MB, "engine", 1.0, 0.0, {"cache_share": 0.0})) == "engine"


def test_a_rate_without_a_bound_is_not_said_to_be_bound() -> None:
    free = tuner(Known("free", 1000, lambda *_: math.inf)).best_rate(MB)
    assert "bound by" not in pace_text(free)
    assert "no known bound" in pace_text(free)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_an_invalid_rate_is_refused(rate: float) -> None:
    with pytest.raises(InvalidArgument, match="give tuples per second, a finite number above 0"):
        require_rate(rate)
