"""Properties of all strategies: exactly w rows, the same on a replay, decided for separate parts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from experiments.cost_aware_top_w import CostAwareTopW
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument, SemistreamError
from semistream.shedding import (
    STRATEGIES,
    ClusterSampling,
    KeepW,
    SampleW,
    Strategy,
    StreamPart,
    TopW,
    batch_seed,
    choose_strategy,
    read_decision,
)
from tests.arrow_types import TYPES, python, several
from tests.shedding.batches import SECONDS, applied, cut, decide, ids_of, kept_of, matches_lists, part_ends, seeds

BY_ROWS = [KeepW(), KeepW(whole_parts=True), SampleW(), TopW(), ClusterSampling()]
EVERY = [*BY_ROWS, CostAwareTopW()]


def _named(strategy: Strategy) -> str:
    return strategy.name


@pytest.mark.parametrize("strategy", BY_ROWS, ids=_named)
@settings(deadline=None, max_examples=60)
@given(matches=matches_lists, ends=part_ends, w=st.integers(0, 50), seed=seeds)
def test_exactly_w_rows_are_kept_and_the_chances_add_up_to_w(
    strategy: Strategy, matches: list[int], ends: list[int], w: int, seed: int
) -> None:
    parts = cut(matches, ends)
    decision = decide(strategy, parts, w, seed)
    kept = applied(decision, parts)
    assert kept.rows == min(w, len(matches)) == decision.account.kept_rows == sum(decision.kept)
    assert decision.account.shed_rows == len(matches) - kept.rows
    assert kept.inclusion.sum() == pytest.approx(kept.rows)
    assert np.all(kept.inclusion[kept.mask] > 0)
    assert np.all((kept.inclusion >= 0) & (kept.inclusion <= 1 + 1e-12))
    assert np.all(kept.mask[kept.inclusion >= 1])


@pytest.mark.parametrize("strategy", EVERY, ids=_named)
@settings(deadline=None, max_examples=40)
@given(matches=matches_lists, ends=part_ends, w=st.integers(0, 50), seed=seeds, data=st.data())
def test_a_replay_keeps_the_same_rows(
    strategy: Strategy, matches: list[int], ends: list[int], w: int, seed: int, data: st.DataObject
) -> None:
    seconds = data.draw(st.lists(st.sampled_from(SECONDS), min_size=len(matches), max_size=len(matches)))
    parts = cut(matches, ends, seconds)
    decision = decide(strategy, parts, w, seed)
    summaries = data.draw(st.permutations([strategy.summarize(part) for part in parts]))
    again = strategy.decide(summaries, w, seed)
    stored = read_decision(decision.to_json())
    assert decision == again == stored
    first, second = applied(decision, parts), applied(stored, parts)
    assert first.mask.tolist() == second.mask.tolist()
    assert first.inclusion.tolist() == second.inclusion.tolist()


@pytest.mark.parametrize("strategy", [SampleW(), TopW(), ClusterSampling()], ids=_named)
def test_another_seed_keeps_other_rows(strategy: Strategy) -> None:
    parts = cut([3] * 200, [70])
    masks = {tuple(kept_of(strategy, parts, 100, seed).mask.tolist()) for seed in range(5)}
    assert len(masks) == 5


@pytest.mark.parametrize("strategy", EVERY, ids=_named)
def test_a_sample_is_one_by_its_design(strategy: Strategy) -> None:
    decision = decide(strategy, cut([1, 2, 3, 4], [2], [0.3] * 4), 2, 0)
    assert strategy.is_sample == (decision.design is not None)
    if decision.design is not None:
        chances = applied(decision, cut([1, 2, 3, 4], [2])).inclusion
        assert decision.design.spread == pytest.approx((chances * (1 - chances)).sum())
        assert decision.design.drawn == pytest.approx(chances[chances < 1].sum())


def test_numbers_of_numpy_will_do() -> None:
    part = StreamPart(3, np.int64(2), np.array([1, 2, 3]))  # type: ignore[arg-type]
    decision = decide(TopW(), [part], np.int64(2), np.uint64(2**63))  # type: ignore[arg-type]
    assert read_decision(decision.to_json()) == decision
    assert decision.apply(part).mask.tolist() == [False, True, True]


def test_seeds_differ_between_batches_and_pipelines() -> None:
    found = {batch_seed(name, batch) for name in ("orders", "orders1", "", "1:orders") for batch in range(500)}
    assert len(found) == 2000


def test_rows_of_a_batch_have_different_names() -> None:
    ids = ids_of(cut([0] * 30, [7, 7, 20]))
    assert np.unique(ids).size == 30


def test_rows_are_split_without_loss() -> None:
    batch = pa.record_batch({"id": list(range(10))})
    kept, shed = SampleW().shed(StreamPart(10), 4, seed=1).split(batch)
    assert (kept.num_rows, shed.num_rows) == (4, 6)
    assert sorted(kept.column("id").to_pylist() + shed.column("id").to_pylist()) == list(range(10))
    with pytest.raises(InvalidArgument, match="has 9 rows; the decision is about 10"):
        SampleW().shed(StreamPart(10), 4, seed=1).split(batch.slice(1))


def test_a_part_that_is_read_in_pieces_is_split_piece_by_piece() -> None:
    whole = pa.record_batch({"id": list(range(10))})
    pieces = [whole.slice(0, 4), whole.slice(4, 6)]
    parts = [StreamPart(piece.num_rows, 2, piece.column("id").to_numpy()) for piece in pieces]
    part = StreamPart.concat(parts)
    kept = TopW().shed(part, 3, seed=1)
    rows = [kept.slice(begin, piece.num_rows).split(piece) for begin, piece in zip((0, 4), pieces, strict=True)]
    assert [kept.column("id").to_pylist() for kept, _ in rows] == [[], [7, 8, 9]]
    assert [shed.column("id").to_pylist() for _, shed in rows] == [[0, 1, 2, 3], [4, 5, 6]]
    with pytest.raises(InvalidArgument, match=r"the pieces are of parts \[1, 2\]"):
        StreamPart.concat([*parts, StreamPart(1, 1, np.array([1]))])
    with pytest.raises(InvalidArgument, match="only some of the pieces have matches"):
        StreamPart.concat([*parts, StreamPart(1, 2)])


@pytest.mark.parametrize("strategy", BY_ROWS, ids=_named)
@pytest.mark.parametrize("w", [-1, float("nan"), 2.5, None, True, "3", float("inf")], ids=repr)
def test_a_limit_that_is_no_number_of_rows_is_refused(strategy: Strategy, w: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"w is .*; give a whole number from 0"):
        strategy.shed(StreamPart(3, matches=np.ones(3, np.int64)), w, seed=0)


@pytest.mark.parametrize("strategy", EVERY, ids=_named)
def test_an_empty_batch_and_no_parts_at_all_keep_nothing(strategy: Strategy) -> None:
    empty = StreamPart(0, matches=np.empty(0, np.int64), seconds=np.empty(0))
    assert strategy.shed(empty, 5, seed=0).rows == 0
    account = strategy.decide([], 5, seed=0).account
    assert (account.kept_rows, account.shed_rows, account.share_lost) == (0, 0, 0)


@pytest.mark.parametrize("strategy", BY_ROWS, ids=_named)
def test_a_stream_of_one_key_is_thinned_to_w(strategy: Strategy) -> None:
    kept = kept_of(strategy, cut([7] * 100, [50]), 30, 3)
    assert kept.rows == 30
    if strategy.name != "keep_w":  # keep_w keeps the first rows, and leaves nothing to chance
        assert kept.inclusion == pytest.approx(0.3)


def test_parts_that_are_not_those_of_the_decision_are_refused() -> None:
    parts = cut([1, 2, 3, 4], [2])
    decision = decide(TopW(), parts, 2, 0)
    with pytest.raises(InvalidArgument, match=r"part 5 was not summarised .* parts \[0, 1\]"):
        decision.apply(StreamPart(2, 5, np.array([1, 2])))
    with pytest.raises(InvalidArgument, match="part 1 has 3 rows, but had 2"):
        decision.apply(StreamPart(3, 1, np.array([1, 2, 3])))
    with pytest.raises(InvalidArgument, match="part 0 was summarised twice"):
        decide(TopW(), [parts[0], parts[0]], 2, 0)


@pytest.mark.parametrize("strategy", [TopW(), ClusterSampling()], ids=_named)
@pytest.mark.parametrize(("told", "found"), [([5, 5], [4, 4]), ([0, 0], [9, 9]), ([1, 9, 9], [9, 9, 9])])
def test_matches_that_are_not_those_of_the_decision_are_refused(
    strategy: Strategy, told: list[int], found: list[int]
) -> None:
    """As of another version of R: a replay would keep another number of rows without a word."""
    decision = decide(strategy, cut(told), len(told) - 1, 0)
    with pytest.raises(InvalidArgument, match=f"part 0 match {sum(found)} times, but {sum(told)} times when"):
        decision.apply(cut(found)[0])


def test_seconds_other_than_those_of_the_decision_are_refused() -> None:
    decision = decide(CostAwareTopW(), cut([5, 5], seconds=[1.0, 2.0]), 1.0, 0)
    with pytest.raises(InvalidArgument, match="part 0 would keep 0 rows instead of the 1 decided"):
        decision.apply(cut([5, 5], seconds=[3.0, 2.0])[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": -1}, "rows is -1"),
        ({"rows": 1, "number": -1}, "number is -1"),
        ({"rows": 2, "matches": np.array([1])}, "matches has shape"),
        ({"rows": 1, "matches": np.array([-1])}, "matches has -1"),
        ({"rows": 1, "matches": np.array([1.5])}, "matches are float64"),
        ({"rows": 1, "seconds": np.array([np.nan])}, "seconds has nan"),
        ({"rows": 1, "seconds": np.array([-1.0])}, "seconds has -1.0"),
    ],
)
def test_nonsense_about_rows_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        StreamPart(**arguments)


def test_a_strategy_asks_for_its_required_inputs() -> None:
    with pytest.raises(InvalidArgument, match="top_w needs the matches"):
        TopW().shed(StreamPart(2), 1, seed=0)
    with pytest.raises(InvalidArgument, match="seed is -1"):
        KeepW().shed(StreamPart(1), 1, seed=-1)


@pytest.mark.parametrize("text", ["", "{}", '{"kind":"cut"}', '{"kind":"other"}', "[]", '{"kind":"cluster","seed":1}'])
def test_a_damaged_decision_is_refused(text: str) -> None:
    with pytest.raises(SemistreamError, match="is not a shedding decision"):
        read_decision(text)


def test_a_decision_stays_small() -> None:
    matches = np.random.default_rng(1).integers(0, 1000, 20_000).tolist()
    for strategy in BY_ROWS:
        text = decide(strategy, cut(matches, [5000, 10_000]), 7000, 1).to_json()
        assert len(json.loads(text)["parts"]) == 3
        assert len(text) < 700


@pytest.mark.parametrize(
    ("loss", "unique", "name"),
    [
        ("max_subset", True, "keep_w"),
        ("random_sample", True, "sample_w"),
        ("max_subset", False, "top_w"),
        ("random_sample", False, "cluster_sampling"),
        ("max_subset", None, "top_w"),
        ("random_sample", None, "cluster_sampling"),
    ],
)
def test_the_table_of_the_paper_chooses(loss: Any, unique: bool | None, name: str) -> None:
    assert choose_strategy(loss, unique_keys=unique).name == name


def test_a_strategy_can_be_named_and_others_are_refused() -> None:
    assert {choose_strategy(name=name).name for name in STRATEGIES} == set(STRATEGIES)
    with pytest.raises(InvalidArgument, match="the strategy is 'best'; give one of keep_w, sample_w"):
        choose_strategy(name="best")
    with pytest.raises(InvalidArgument, match="loss is 'least'; give one of max_subset, random_sample"):
        choose_strategy("least")  # type: ignore[arg-type]


@pytest.mark.parametrize("label", TYPES)
def test_rows_of_every_arrow_type_are_split(label: str) -> None:
    rows = pa.record_batch({"v": several(TYPES[label], 12, 1), "n": np.arange(12)})
    (part,) = parts = cut([0] * 12)
    kept, shed = decide(SampleW(), parts, 5, seed=3).apply(part).split(rows)
    found = dict(zip([*python(kept["n"]), *python(shed["n"])], [*python(kept["v"]), *python(shed["v"])], strict=True))
    assert (kept.num_rows, shed.num_rows) == (5, 7)
    assert [found[number] for number in range(12)] == python(rows["v"])
