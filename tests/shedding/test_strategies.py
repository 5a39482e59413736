"""The guarantee of each strategy, against every possible choice and against chance."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.shedding import ClusterSampling, KeepW, SampleW, TopW
from semistream.shedding.decision import row_ranks
from semistream.shedding.kernels import draw_systematic
from semistream.shedding.summary import chance_quotas, even_quotas
from tests.shedding.batches import applied, cut, decide, kept_of, matches_lists, part_ends, seeds
from tests.shedding.naive import chi_square_limit, normal_limit

FALSE_ALARM = 1e-6  # of each test by chance, had its seeds not been fixed: how often right code would fail it


def chi_square(counts: list[int], expected: list[float]) -> float:
    return sum((count - e) ** 2 / e for count, e in zip(counts, expected, strict=True))


# KeepW


def test_keep_w_takes_the_first_rows_of_each_part_in_proportion() -> None:
    parts = cut([1] * 10, [6])
    kept = kept_of(KeepW(), parts, 5, 0)
    assert np.flatnonzero(kept.mask).tolist() == [0, 1, 2, 6, 7]
    assert kept.inclusion.tolist() == kept.mask.astype(float).tolist()


@settings(deadline=None)
@given(rows=st.lists(st.integers(0, 1000), min_size=1, max_size=8), share=st.floats(0, 1))
def test_even_quotas_are_whole_and_within_one_of_the_share(rows: list[int], share: float) -> None:
    keep = int(sum(rows) * share)
    quotas = even_quotas(rows, keep)
    assert sum(quotas) == keep
    for own, quota in zip(rows, quotas, strict=True):
        assert 0 <= quota <= own
        assert abs(quota - own * keep / max(sum(rows), 1)) < 1


# SampleW


def test_every_set_of_w_rows_is_as_likely() -> None:
    """All 20 sets of 3 of 6 rows in three parts, one of them empty."""
    parts = cut([1] * 6, [2, 2])
    trials = 4000
    found = Counter(tuple(np.flatnonzero(kept_of(SampleW(), parts, 3, seed).mask).tolist()) for seed in range(trials))
    sets = list(combinations(range(6), 3))
    assert set(found) <= set(sets)
    assert chi_square([found[s] for s in sets], [trials / 20] * 20) < chi_square_limit(19, FALSE_ALARM)


def test_a_sample_of_many_rows_is_even_over_them() -> None:
    rows, w = 200_000, 50_000
    mask = kept_of(SampleW(), cut([0] * rows, [30_000, 150_000]), w, 11).mask
    blocks = mask.reshape(100, -1).sum(axis=1)
    share = w / rows
    spread = rows / 100 * share * (1 - share)
    assert float(((blocks - w / 100) ** 2).sum() / spread) < chi_square_limit(99, FALSE_ALARM)
    runs = int((mask[1:] & mask[:-1]).sum())  # neighbours are kept together as often as any two rows
    assert abs(runs - rows * share**2) < normal_limit(FALSE_ALARM) * (rows * share**2) ** 0.5 * 2


@settings(deadline=None)
@given(rows=st.lists(st.integers(0, 30), min_size=1, max_size=6), share=st.floats(0, 1), seed=seeds)
def test_chance_quotas_fit_the_parts(rows: list[int], share: float, seed: int) -> None:
    keep = int(sum(rows) * share)
    quotas = chance_quotas(rows, keep, seed)
    assert sum(quotas) == keep
    assert all(0 <= quota <= own for own, quota in zip(rows, quotas, strict=True))


@pytest.mark.parametrize(("seed", "part"), [(0, 0), (2**64 - 1, 2**22 - 1), (12345, 1)])
def test_ranks_differ_within_a_part_and_between_parts(seed: int, part: int) -> None:
    ranks = row_ranks(seed, part, 100_000)
    assert np.unique(ranks).size == 100_000
    assert not np.array_equal(ranks[:10], row_ranks(seed, (part + 1) % 2**22, 10))
    assert not np.array_equal(ranks[:10], row_ranks(seed ^ 1, part, 10))
    assert np.array_equal(ranks[:10], row_ranks(seed, part, 10))


# TopW


@settings(deadline=None, max_examples=150)
@given(matches=matches_lists, ends=part_ends, w=st.integers(0, 50), seed=seeds)
def test_top_w_keeps_the_rows_with_the_most_matches(matches: list[int], ends: list[int], w: int, seed: int) -> None:
    parts = cut(matches, ends)
    decision = decide(TopW(), parts, w, seed)
    kept = applied(decision, parts)
    values = np.array(matches, np.int64)
    assert sorted(values[kept.mask].tolist()) == sorted(sorted(matches)[max(len(matches) - w, 0) :])
    assert decision.account.kept_results == values[kept.mask].sum()
    assert decision.account.shed_results == values[~kept.mask].sum()


def test_rows_that_tie_for_the_last_places_are_as_likely() -> None:
    """Of five rows with 3 matches in two parts, two are kept: all 10 pairs as often, and always the 9s."""
    matches = [3, 9, 3, 0, 3, 9, 3, 1, 3]
    parts, tied = cut(matches, [4]), [0, 2, 4, 6, 8]
    trials = 3000
    found = Counter()
    for seed in range(trials):
        kept = kept_of(TopW(), parts, 4, seed)
        rows = np.flatnonzero(kept.mask).tolist()
        assert {1, 5} <= set(rows)
        assert kept.inclusion[tied].tolist() == [0.4] * 5
        found[tuple(row for row in rows if row in tied)] += 1
    pairs = list(combinations(tied, 2))
    assert set(found) <= set(pairs)
    assert chi_square([found[p] for p in pairs], [trials / 10] * 10) < chi_square_limit(9, FALSE_ALARM)


# ClusterSampling


@settings(deadline=None, max_examples=100)
@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=15).filter(any), w=st.integers(1, 12), data=st.data())
def test_over_all_starts_a_row_is_drawn_exactly_in_proportion_to_its_matches(
    sizes: list[int], w: int, data: st.DataObject
) -> None:
    """Not by chance: every start of the comb is tried, in one order of the rows."""
    decision = ClusterSampling().decide([ClusterSampling().summarize(cut(sizes)[0])], w, seed=0)
    values = np.array(sizes, np.int64)
    order = np.array(data.draw(st.permutations(range(len(sizes)))), np.intp)
    certain, draws, total = decision.certain, decision.draws, decision.total  # type: ignore[attr-defined]
    times = np.zeros(len(sizes), np.int64)
    for start in range(total):
        chosen = np.zeros(len(sizes), np.bool_)
        draw_systematic(order, values, certain, draws, total, start, chosen)
        assert chosen.sum() == draws
        times += chosen
    assert times.tolist() == [size * draws if 0 < size < certain else 0 for size in sizes]


@settings(deadline=None, max_examples=150)
@given(matches=matches_lists, ends=part_ends, w=st.integers(0, 50), seed=seeds)
def test_chances_are_proportional_to_matches_up_to_one(matches: list[int], ends: list[int], w: int, seed: int) -> None:
    kept = kept_of(ClusterSampling(), cut(matches, ends), w, seed)
    positive = np.array([m for m in matches if m], np.float64)
    chances = kept.inclusion[np.array(matches, np.int64) > 0]
    if positive.size <= w:
        assert np.all(chances == 1)
        return
    assert not np.any(kept.mask[np.array(matches) == 0])
    below = chances < 1
    factor = chances[below] / positive[below]
    assert factor == pytest.approx(factor[0]) if below.any() else w == 0
    if below.any():
        assert np.all(positive[~below] * factor[0] >= 1 - 1e-9)  # no row is kept for certain that need not be


def test_rows_are_drawn_as_often_as_they_should_be() -> None:
    matches = [1, 1, 2, 3, 5, 8, 0, 0, 30, 2, 2, 1]
    parts = cut(matches, [3, 7])
    trials, w = 4000, 5
    times = np.zeros(len(matches))
    together = 0
    for seed in range(trials):
        kept = kept_of(ClusterSampling(), parts, w, seed)
        times += kept.mask
        together += bool(kept.mask[4] and kept.mask[5])
    chances = kept.inclusion
    off = np.abs(times - trials * chances)
    limit = normal_limit(FALSE_ALARM / len(matches)) * np.sqrt(trials * chances * (1 - chances))
    assert np.all(off <= limit + 1e-9)
    assert 0 < together < trials  # neighbours in the batch are neither never nor always kept together


def test_chances_are_exact_where_products_are_large() -> None:
    matches = [2**40, 2**40 - 1, 2**39, 7] * 50_000
    kept = kept_of(ClusterSampling(), cut(matches, [100_000]), 60_000, 5)
    assert kept.rows == 60_000
    assert kept.inclusion.sum() == pytest.approx(60_000)
