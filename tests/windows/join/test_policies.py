"""Evictions from the memory, tuple by tuple as in the naive model, for every policy and allocation."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.windows import (
    Expected,
    GivenProbabilities,
    LearntProbabilities,
    Life,
    MemoryArchive,
    Policy,
    Prob,
    Random,
    Tuples,
    WindowJoin,
)
from tests.windows import naive
from tests.windows.streams import SCHEMAS, Stream, batch_of, cuts, drive, evictions, pairs_of, streams, whole

WEIGHING = {"prob": (Prob, naive.prob), "life": (Life, naive.life), "expected": (Expected, naive.expected)}


def of_streams(left: Stream, right: Stream) -> GivenProbabilities:
    tables = [pa.Table.from_batches([batch_of(stream, side)]) for side, stream in enumerate((left, right))]
    return GivenProbabilities.of_streams(*tables, on="k")


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    """Windows and a memory, as the operator and as the model take them."""
    lengths = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    tuples = draw(st.tuples(st.booleans(), st.booleans()))
    windows = [Tuples(n) if by else n for n, by in zip(lengths, tuples, strict=True)]
    shared = draw(st.booleans())
    parts = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    memory: Any = sum(parts) if shared else dict(zip(("left", "right"), parts, strict=True))
    return {
        "operator": {
            "window": dict(zip(("left", "right"), windows, strict=True)),
            "memory": memory,
            "allocation": "variable" if shared else "fixed",
        },
        "model": {
            "windows": tuple(naive.Window(n, by) for n, by in zip(lengths, tuples, strict=True)),
            "capacity": sum(parts) if shared else parts,
        },
    }


def check(
    policy: Policy, model: naive.Naive, operator: dict[str, Any], left: Stream, right: Stream, pieces: Any = None
) -> WindowJoin:
    archive = MemoryArchive()
    join = WindowJoin(*SCHEMAS, on="k", time="t", policy=policy, archive=archive, **operator)
    results = pairs_of(list(drive(join, left, right, pieces or whole(left, right))))
    model.run(left, right)
    assert evictions(archive) == model.evicted
    assert results == model.results
    for side, counts in enumerate((join.stats.left, join.stats.right)):
        assert counts.evicted == sum(key[0] == side for key in model.evicted)
        assert counts.in_memory == sum(one.side == side for one in model.memory)
        assert counts.rows_in == counts.null_keys + counts.in_memory + counts.expired + counts.evicted
    return join


@pytest.mark.parametrize("name", WEIGHING)
@given(data=st.data(), limit=limits(), left=streams(nulls=True), right=streams(nulls=True))
@settings(max_examples=60, deadline=None)
def test_with_probabilities_of_the_whole_streams(
    name: str, data: st.DataObject, limit: dict[str, Any], left: Stream, right: Stream
) -> None:
    policy, worth = WEIGHING[name]
    naive.whole_stream_frequencies(left, right)
    model = naive.Naive(**limit["model"], worth=worth)
    check(policy(of_streams(left, right)), model, limit["operator"], left, right, data.draw(cuts(left, right)))


@pytest.mark.parametrize("name", ["prob", "life"])
@given(data=st.data(), limit=limits(), left=streams(rows=40), right=streams(rows=40))
@settings(max_examples=50, deadline=None)
def test_with_learnt_probabilities(
    name: str, data: st.DataObject, limit: dict[str, Any], left: Stream, right: Stream
) -> None:
    policy, worth = WEIGHING[name]
    half_life, refresh = data.draw(st.integers(5, 40)), data.draw(st.integers(1, 20))
    learnt = LearntProbabilities(half_life=half_life, refresh=refresh, width=1024)
    sketch_tuples = -(-2 * 2 * 1024 * 4 // 160)
    memory = limit["operator"]["memory"]
    if isinstance(memory, int):
        memory += sketch_tuples
    else:
        memory = {side: tuples + -(-sketch_tuples // 2) for side, tuples in memory.items()}
    model = naive.Naive(**limit["model"], worth=worth, learnt=naive.Learnt(half_life, refresh))
    operator = {**limit["operator"], "memory": memory}
    check(policy(learnt), model, operator, left, right, data.draw(cuts(left, right)))


@given(data=st.data(), limit=limits(), left=streams(), right=streams(), seed=st.integers(0, 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_at_random(data: st.DataObject, limit: dict[str, Any], left: Stream, right: Stream, seed: int) -> None:
    model = naive.Naive(**limit["model"], seed=seed)
    check(Random(seed), model, limit["operator"], left, right, data.draw(cuts(left, right)))


@given(left=streams(keys=3, rows=20), right=streams(keys=3, rows=20))
@settings(max_examples=30, deadline=None)
def test_unbounded_windows_fill_up_with_the_most_valuable_tuples(left: Stream, right: Stream) -> None:
    """WINDOW 6.2: over time all memory slots will fill up with high-priority tuples."""
    naive.whole_stream_frequencies(left, right)
    for policy, worth in ((Prob, naive.prob), (Expected, naive.expected)):
        model = naive.Naive((naive.Window(None), naive.Window(None)), (2, 2), worth)
        operator = {"window": None, "memory": 4}
        check(policy(of_streams(left, right)), model, operator, left, right)
        if policy is Prob:
            for side, stream in enumerate((left, right)):
                kept = sorted(naive.prob(model, one) for one in model.memory if one.side == side)
                other = naive.FREQUENCIES[1 - side]
                assert kept == sorted(other.get(key, 0.0) for _, key in stream)[-2:]


def test_the_example_of_figure_3() -> None:
    """WINDOW Fig. 3: of seven results the optimum misses two with a memory of one tuple for each stream."""
    r, s = ([(t, k) for t, k in enumerate(keys)] for keys in ([1, 1, 1, 3, 2], [2, 3, 1, 1, 3]))
    exact = naive.Naive((naive.Window(3), naive.Window(3)), None).run(r, s)
    assert sum(exact.results.values()) == 7
    naive.whole_stream_frequencies(r, s)
    for name, (policy, worth) in WEIGHING.items():
        model = naive.Naive((naive.Window(3), naive.Window(3)), (1, 1), worth)
        join = check(policy(of_streams(r, s)), model, {"window": 3, "memory": 2}, r, s)
        assert join.stats.results <= 5, name


def test_two_cells_less_than_the_window_is_enough() -> None:
    """WINDOW 5.2.1, footnote: M = 2w - 2 gives the exact result, as the new tuples have cells of their own."""
    keys = [3, 1, 2, 1, 1, 3, 2, 2, 1, 3] * 3
    stream = list(enumerate(keys))
    naive.whole_stream_frequencies(stream, stream)
    for policy in (Prob(of_streams(stream, stream)), Life(of_streams(stream, stream)), Random(1)):
        join = WindowJoin(*SCHEMAS, on="k", time="t", window=4, memory=6, policy=policy)
        results = pairs_of(list(drive(join, stream, stream, whole(stream, stream))))
        assert results == naive.Naive((naive.Window(4), naive.Window(4)), None).run(stream, stream).results
        assert join.stats.left.evicted == join.stats.right.evicted == 0


@given(data=st.data(), left=streams(keys=200, rows=120, step=1), right=streams(keys=200, rows=120, step=1))
@settings(max_examples=20, deadline=None)
def test_many_classes(data: st.DataObject, left: Stream, right: Stream) -> None:
    """Each key has a value of its own, so that the lowest class is found across several levels of marks."""
    tables = []
    for side in range(2):
        values = data.draw(st.permutations(range(200)))
        naive.FREQUENCIES[side] = {key: 1.0 + 31 * value for key, value in enumerate(values)}
        # Classes of values that no key of the streams has spread the others over many words.
        keys, frequency = zip(*naive.FREQUENCIES[side].items(), strict=True)
        more = [float(v) for v in range(2, 6200) if (v - 1) % 31]
        tables.append(pa.table({"k": [*keys, *range(1000, 1000 + len(more))], "frequency": [*frequency, *more]}))
    model = naive.Naive((naive.Window(30), naive.Window(30)), 12, naive.prob)
    operator = {"window": 30, "memory": 12, "allocation": "variable"}
    check(Prob(GivenProbabilities(*tables)), model, operator, left, right)
