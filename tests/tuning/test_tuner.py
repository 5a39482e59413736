"""The tuner against brute force, over operators whose rates are known and over real ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import Relation
from semistream.costs.machine import DEFAULT_MACHINE, Machine
from semistream.costs.prediction import Prediction, predict
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.relation import DiskCosts
from semistream.tuning.candidates import candidates
from semistream.tuning.explain import workload_of
from semistream.tuning.tuner import Options, Tuner
from tests.tuning.candidates import Known, tuner

FINE = 1.004
SLOW_DISK = Machine("slow", DiskCosts(0.008, transfer_s_per_byte=1 / 120e6))


def steps(least: int, most: int, step: float = FINE) -> Iterator[int]:
    """Memories that brute force tries."""
    memory = float(least)
    while memory < most:
        yield math.floor(memory)
        memory = max(memory * step, memory + 1)
    yield most


def tried(each: Tuner, memory: int) -> Iterator[Prediction]:
    """All operators with all options, without what a tuner keeps."""
    for candidate in each.candidates:
        for options in candidate.settings:
            try:
                model = candidate.arranged(memory, options).model
            except BudgetError:
                continue
            yield predict(candidate.name, model, each.workload, each.machine, memory_bytes=memory, options=options)


def fastest(each: Tuner, memory: int) -> float:
    return max((prediction.rate for prediction in tried(each, memory)), default=0.0)


def latency(prediction: Prediction) -> tuple[float, float]:
    return prediction.median_latency_s, prediction.worst_latency_s


# Operators whose rates are known


@st.composite
def operators(draw: st.DrawFn, name: str, dips: bool) -> Known:
    """Rates as a power of the memory, with better and worse options, and temporary dips."""
    least = draw(st.integers(50, 20_000))
    scale, power = draw(st.floats(0.1, 100)), draw(st.floats(0.05, 2))
    shares = draw(st.lists(st.floats(0.01, 0.9), max_size=3))
    best_share = draw(st.floats(0.01, 0.9))
    dip_at, depth = draw(st.floats(1.0, 50.0)) * least, draw(st.floats(0.0, 0.25)) if dips else 0.0

    def rate(memory: int, options: Options) -> float:
        off = abs(options.get("cache_share", 0.0) - best_share)
        held_back = depth if dip_at <= memory < 1.15 * dip_at else 0.0
        return scale * (memory / 1000) ** power * (1 - off / 2) * (1 - held_back)

    options = [{"cache_share": share} for share in [0.0, *shares]]
    return Known(name, least, rate, options, waiting=draw(st.floats(1, 1000)))


def sets_of_operators(dips: bool) -> st.SearchStrategy[list[Known]]:
    return st.integers(1, 4).flatmap(
        lambda count: st.tuples(*(operators(f"operator{i}", dips) for i in range(count))).map(list)
    )


@settings(max_examples=60, deadline=None)
@given(sets_of_operators(dips=True), st.floats(1.0, 500.0))
def test_the_best_rate_in_a_memory_is_that_of_brute_force(known: list[Known], times: float) -> None:
    chooser = tuner(*known)
    memory = math.floor(chooser.least_bytes * times)
    assert chooser.best_rate(memory).rate == fastest(chooser, memory)
    choices = chooser.choices(memory)
    assert [choice.rate for choice in choices] == sorted((choice.rate for choice in choices), reverse=True)
    assert {choice.operator for choice in choices} == {each.name for each in known if each.least <= memory}
    for choice in choices:
        rates = [each.rate for each in tried(chooser, memory) if each.operator == choice.operator]
        assert choice.rate == max(rates)


@settings(max_examples=60, deadline=None)
@given(sets_of_operators(dips=True), st.floats(1.0, 500.0), st.floats(0.01, 1.3))
def test_the_least_memory_for_a_rate_is_that_of_brute_force(known: list[Known], times: float, share: float) -> None:
    chooser = tuner(*known)
    most = math.floor(chooser.least_bytes * times)
    rate = share * fastest(chooser, most)
    found = chooser.least_memory(rate, most)

    def is_enough(memory: int) -> bool:
        """Check a little more memory too: a size may be missed if it suffices but a few bytes more do not."""
        more = (min(math.floor(memory * (1 + percent / 100)), most) for percent in (0.0, 0.5, 1.0, 1.5, 2.1))
        return all(fastest(chooser, each) >= rate for each in more)

    enough = next((memory for memory in steps(chooser.least_bytes, most) if is_enough(memory)), None)
    if enough is None:
        assert found is None or found.rate >= rate  # between two memories of the grid
        return
    if found is None:  # then the rate is had in a bump between two rungs, and nowhere else
        assert all(fastest(chooser, rung) < rate for rung in chooser.ladder(most))
        return
    assert found.rate >= rate
    assert found.rate == fastest(chooser, found.memory_bytes)
    assert found.memory_bytes <= max(1.021 * enough, enough + 1)


@settings(max_examples=60, deadline=None)
@given(sets_of_operators(dips=False), st.floats(1.0, 300.0), st.floats(0.01, 1.1))
def test_the_least_latency_at_a_rate_is_that_of_brute_force(known: list[Known], times: float, share: float) -> None:
    most = math.floor(tuner(*known).least_bytes * times)
    rate = share * fastest(tuner(*known), most)
    chooser = tuner(*known, rate=rate)
    found = chooser.least_latency(rate, most)
    all_of_them = (each for memory in steps(chooser.least_bytes, most) for each in tried(chooser, memory))
    best = min((each for each in all_of_them if each.rate >= rate), key=latency, default=None)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert found.rate >= rate
    assert found.median_latency_s <= 1.03 * best.median_latency_s
    assert found.worst_latency_s <= 1.03 * best.worst_latency_s


def test_the_least_latency_is_found_at_the_requested_rate() -> None:
    waiting = Known("waits", 1000, lambda memory, _: memory / 10, waiting=10.0)
    found = tuner(waiting, rate=7.0).least_latency(500.0, 100_000)
    assert found is not None
    assert found.memory_bytes == pytest.approx(5000, rel=0.02)
    assert found.median_latency_s == pytest.approx(found.memory_bytes / 10 / 500)


def test_a_dip_does_not_hide_a_smaller_memory() -> None:
    """The rate is had at 12,700 bytes, and from 13,000 to 15,000 not."""
    dips = Known("dips", 10_000, lambda memory, _: memory * (0.75 if 13_000 <= memory < 15_000 else 1.0))
    found = tuner(dips).least_memory(12_700.0, 10**6)
    assert found is not None
    assert 12_700 <= found.memory_bytes < 13_000


def test_a_rate_that_no_memory_gives_has_no_least_memory_and_no_latency() -> None:
    bound = Known("bound", 1000, lambda memory, _: 50.0)
    assert tuner(bound).least_memory(51.0, 10**9) is None
    assert tuner(bound).least_latency(51.0, 10**9) is None
    least = tuner(bound).least_memory(50.0, 10**9)
    assert least is not None
    assert least.memory_bytes == 1000


def test_nothing_is_found_below_the_least_memory() -> None:
    chooser = tuner(Known("large", 1000, lambda memory, _: 50.0), Known("small", 800, lambda memory, _: 5.0))
    assert chooser.ladder(799) == []
    assert chooser.choices(799) == []
    assert chooser.least_memory(1.0, 799) is None
    assert chooser.least_latency(1.0, 799) is None
    for choose in (chooser.best_rate, chooser.chosen):
        with pytest.raises(
            BudgetError, match=r"799 bytes is too small .*: small needs the least here, 800 bytes"
        ) as no:
            choose(799)
        assert no.value.least_bytes == 800


def test_the_ladder_goes_from_the_least_to_the_most_memory_in_steps_of_a_third() -> None:
    chooser = tuner(Known("any", 1, lambda memory, _: 1.0))
    for most in (1, 2, 5, 1000, 10**9):
        rungs = chooser.ladder(most)
        assert (rungs[0], rungs[-1]) == (1, most)
        assert all(low < high <= 1.31 * low + 1 for low, high in pairwise(rungs))


def test_a_memory_is_not_tried_twice() -> None:
    asked: list[int] = []

    def rate(memory: int, _: Options) -> float:
        asked.append(memory)
        return memory

    chooser = tuner(Known("counted", 1000, rate))
    rungs = chooser.ladder(10**6)
    for _ in range(2):
        for memory in rungs:
            chooser.choices(memory)
            chooser.chosen(memory)
        chooser.least_memory(math.inf, 10**6)
    assert asked == rungs


@pytest.mark.parametrize(
    ("other", "rate", "chosen"),
    [
        (1.04, None, "usual"),
        (1.06, None, "other"),
        (math.inf, None, "other"),
        (0.5, None, "usual"),
        (1.04, 100.0, "usual"),  # with which it keeps up
        (1.04, 103.0, "other"),  # with which only the other does
        (1.04, 200.0, "usual"),  # with which none does
    ],
)
def test_the_usual_operator_is_chosen_unless_another_is_clearly_faster(
    other: float, rate: float | None, chosen: str
) -> None:
    chooser = tuner(
        Known("other", 10, lambda memory, _: 100.0 * other),
        Known("usual", 10, lambda memory, _: 100.0),
        rate=rate,
        usual="usual",
        akin=frozenset({"other"}),
    )
    assert chooser.chosen(1000).operator == chosen
    assert chooser.best_rate(1000).operator == ("usual" if other < 1 else "other")


@pytest.mark.parametrize(("other", "chosen"), [(1.4, "usual"), (1.6, "other")])
def test_an_operator_of_another_kind_must_be_much_faster(other: float, chosen: str) -> None:
    """Its model may be off by as much: SSIJ's and HYBRIDJOIN's were seen to be."""
    chooser = tuner(
        Known("other", 10, lambda memory, _: 100.0 * other), Known("usual", 10, lambda memory, _: 100.0), usual="usual"
    )
    assert chooser.chosen(1000).operator == chosen


def test_a_last_resort_is_chosen_only_if_there_is_nothing_else() -> None:
    chooser = tuner(
        Known("slow", 800, lambda memory, _: 1.0),
        Known("resort", 10, lambda memory, _: 100.0),
        last_resort=frozenset({"resort"}),
    )
    assert (chooser.chosen(1000).operator, chooser.chosen(100).operator) == ("slow", "resort")


def test_of_rates_without_a_bound_the_usual_operator_s_is_as_good_as_any() -> None:
    free = [Known(name, 10, lambda memory, _: math.inf) for name in ("other", "usual")]
    assert tuner(*free, usual="usual").chosen(1000).operator == "usual"


def test_another_operator_is_chosen_where_the_usual_one_does_not_fit() -> None:
    chooser = tuner(Known("small", 10, lambda *_: 1.0), Known("usual", 500, lambda *_: 9.0), usual="usual")
    assert chooser.chosen(499).operator == "small"
    assert chooser.chosen(500).operator == "usual"


# Real operators


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("tuner") / "r"
    rows = 20_000
    columns = {f"c{i}": np.arange(rows) for i in range(8)}
    return Relation.build(pa.table({"key": range(rows), **columns}), path, key="key", page_bytes=4096)


def chooser_for(relation: Relation, exponent: float, machine: Machine, rate: float | None = None) -> Tuner:
    spec = JoinSpec.of(relation, pa.schema([("key", pa.int64()), ("seq", pa.int64())]), on="key")
    return Tuner(workload_of(relation, spec, zipf=exponent, rate=rate), machine, candidates(relation, spec))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exponent", "machine", "share"),
    [(0.0, SLOW_DISK, 0.1), (0.0, SLOW_DISK, 0.7), (1.2, DEFAULT_MACHINE, 0.03), (1.2, DEFAULT_MACHINE, 0.5)],
)
def test_real_operators_by_brute_force(relation: Relation, exponent: float, machine: Machine, share: float) -> None:
    chooser = chooser_for(relation, exponent, machine)
    most = relation.nbytes // 3
    rate = share * chooser.best_rate(most).rate
    found = chooser.least_memory(rate, most)
    assert found is not None
    assert found.rate >= rate
    assert found.rate == fastest(chooser, found.memory_bytes)
    almost = math.floor(found.memory_bytes / 1.021)
    below = [*steps(chooser.least_bytes, almost, 1.2), *steps(round(0.7 * almost), almost, 1.03)]
    assert not [memory for memory in below if fastest(chooser, memory) >= 1.03 * rate]  # but for steps of whole pages


@pytest.mark.parametrize("share", [0.02, 0.4])
def test_the_latency_of_real_operators_by_brute_force(relation: Relation, share: float) -> None:
    most = relation.nbytes // 8
    rate = share * chooser_for(relation, 1.0, SLOW_DISK).best_rate(most).rate
    chooser = chooser_for(relation, 1.0, SLOW_DISK, rate)
    found = chooser.least_latency(rate, most)
    memories = steps(chooser.least_bytes, most, 1.05)
    best = min((each for memory in memories for each in tried(chooser, memory) if each.rate >= rate), key=latency)
    assert found is not None
    assert found.rate >= rate
    assert found.median_latency_s <= 1.03 * best.median_latency_s
    if best.median_latency_s == 0:
        assert found.worst_latency_s <= 1.03 * best.worst_latency_s


def test_rates_of_real_operators_grow_with_memory_but_for_small_steps(relation: Relation) -> None:
    """The search for the least memory relies on this."""
    chooser = chooser_for(relation, 1.0, DEFAULT_MACHINE)
    rates = np.array([chooser.best_rate(memory).rate for memory in chooser.ladder(relation.nbytes)])
    assert np.all(rates >= 0.7 * np.maximum.accumulate(rates))
    assert rates[-1] == rates.max() > 10 * rates[0]


def test_the_least_of_a_real_operator_is_enough_for_it_and_less_is_not(relation: Relation) -> None:
    chooser = chooser_for(relation, 1.0, DEFAULT_MACHINE)
    for candidate in chooser.candidates:
        least = chooser.least_of(candidate)
        assert sum(candidate.arranged(least, candidate.settings[0]).parts.values()) == least
        for options in candidate.settings:
            with pytest.raises(BudgetError):
                candidate.arranged(least - 1, options)


def test_all_of_the_memory_is_for_something(relation: Relation) -> None:
    chooser = chooser_for(relation, 1.0, DEFAULT_MACHINE)
    for candidate in chooser.candidates:
        memory = max(relation.nbytes // 5, chooser.least_of(candidate))  # all of R is more than a fifth of it
        for options in candidate.settings:
            assert sum(candidate.arranged(memory, options).parts.values()) == memory


def test_an_engine_without_a_cache_is_expected_to_do_what_a_sweep_does(relation: Relation) -> None:
    dear = replace(DEFAULT_MACHINE.operators["engine"], answers_s=1.0)  # there is no cache that answers
    machine = replace(DEFAULT_MACHINE, operators={**DEFAULT_MACHINE.operators, "engine": dear})
    chooser = chooser_for(relation, 0.0, machine)
    rates = {each.operator: each.rate for each in chooser.choices(relation.nbytes // 5)}
    assert rates["engine"] == pytest.approx(rates["sweep"], rel=0.02)
    assert chooser.chosen(relation.nbytes // 5).operator == "engine"
