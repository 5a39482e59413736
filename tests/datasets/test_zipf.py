"""Zipf draws follow the exact distribution, reproducibly, whatever the domain's size and the batch split."""

import math
import tracemalloc
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.datasets import Zipf
from semistream.datasets.zipf import harmonic
from semistream.errors import InvalidArgument

EXPONENTS = [0, 0.5, 1, 1.5, 2]
FALSE_ALARM = 1e-6  # per chi-square test; seeds are fixed, so a test that passes once passes always


def chi_square_limit(degrees: int) -> float:
    """Exceeded by chance with probability FALSE_ALARM (Wilson & Hilferty 1931)."""
    z = NormalDist().inv_cdf(1 - FALSE_ALARM)
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + z * math.sqrt(spread)) ** 3


def assert_fits(observed: npt.NDArray[np.int64], probability: npt.NDArray[np.float64]) -> None:
    """Pearson's test, with neighbouring bins merged until at least 10 draws are expected in each."""
    draws = observed.sum()
    seen, expected = [0.0], [0.0]
    for got, p in zip(observed, probability, strict=True):
        if expected[-1] >= 10:
            seen.append(0.0)
            expected.append(0.0)
        seen[-1] += got
        expected[-1] += p * draws
    got_array, expected_array = np.array(seen), np.array(expected)
    statistic = ((got_array - expected_array) ** 2 / expected_array).sum()
    assert probability.sum() == pytest.approx(1, abs=1e-9)
    assert statistic < chi_square_limit(len(seen) - 1)


@pytest.mark.parametrize("degrees", [2, 10, 50, 200])
def test_the_stated_false_alarm_rate_holds(degrees: int):
    # For an even number of degrees the tail of chi-square is a finite Poisson sum.
    half = chi_square_limit(degrees) / 2
    tail = sum(math.exp(-half + j * math.log(half) - math.lgamma(j + 1)) for j in range(degrees // 2))
    assert FALSE_ALARM / 4 < tail < FALSE_ALARM * 2


@pytest.mark.parametrize("domain", [1, 2, 3, 50, 3000])
@pytest.mark.parametrize("exponent", [*EXPONENTS, 0.99, 1.0000001, 4])
def test_ranks_fit_the_exact_probabilities(exponent: float, domain: int):
    stream = Zipf(exponent, domain, seed=11)
    ranks = stream.ranks(400_000)
    if domain == 1:
        assert (ranks == 1).all()
        return
    observed = np.bincount(ranks, minlength=domain + 1)[1:]
    assert_fits(observed, stream.probability(np.arange(1, domain + 1)))


@pytest.mark.parametrize("domain", [10**9, 10**12, 2**52, 2**62])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_ranks_of_large_domains_fit_at_every_magnitude(exponent: float, domain: int):
    stream = Zipf(exponent, domain, seed=5)
    # Three bins to every doubling of the rank, so that errors in the far tail and at the head both show.
    edges = sorted({round(2 ** (i / 3)) for i in range(3 * (domain.bit_length() - 1))} | {domain})
    share = [0.0, *(stream.share(edge) for edge in edges)]
    ranks = stream.ranks(400_000)
    observed = np.bincount(np.searchsorted(np.array(edges), ranks), minlength=len(edges))
    assert_fits(observed, np.diff(share))


def test_ranks_beyond_the_digits_of_a_double_are_all_reachable():
    ranks = Zipf(0.5, 2**62, seed=2).ranks(400_000)
    low_bits = np.bincount(ranks & 63, minlength=64)
    assert_fits(low_bits, np.full(64, 1 / 64))
    assert ranks.max() <= 2**62
    assert ranks.min() >= 1


@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0, 1.0000001, 1.5, 2.0, 5.0, 30.0])
@pytest.mark.parametrize("n", [1, 2, 1024, 1025, 10**6])
def test_harmonic_equals_the_plain_sum(exponent: float, n: int):
    plain = math.fsum(np.arange(1, n + 1, dtype=np.float64) ** -exponent)
    assert harmonic(n, exponent) == pytest.approx(plain, rel=1e-13)


def test_harmonic_of_a_large_domain_follows_its_asymptotes():
    n = 10**15
    assert harmonic(n, 1.0) == pytest.approx(math.log(n) + np.euler_gamma + 0.5 / n, rel=1e-13)
    assert harmonic(n, 2.0) == pytest.approx(math.pi**2 / 6 - 1 / n, rel=1e-13)
    assert harmonic(n, 0.5) == pytest.approx(2 * math.sqrt(n) - 1.4603545088095868, rel=1e-13)


def test_probability_of_one_rank_and_of_an_array_agree():
    stream = Zipf(1.5, 10**9)
    ranks = np.array([1, 2, 1000, 10**9])
    assert stream.probability(ranks).tolist() == [stream.probability(int(rank)) for rank in ranks]
    assert stream.share(2) == pytest.approx(stream.probability(1) + stream.probability(2))
    assert (stream.share(0), stream.share(10**9)) == (0, 1)


@given(domain=st.integers(1, 3000), seed=st.integers(0, 2**63 - 1), first=st.integers(-(2**63), 2**62))
@settings(max_examples=150, deadline=None)
def test_keys_of_all_ranks_are_a_permutation_of_the_domain(domain: int, seed: int, first: int):
    keys = Zipf(1.0, domain, seed=seed, first=first).hot_keys(domain)
    assert np.sort(keys - first).tolist() == list(range(domain))


@pytest.mark.parametrize("domain", [10**9, 2**40 + 1, 2**62])
def test_hot_keys_of_a_large_domain_lie_anywhere_in_it(domain: int):
    keys = Zipf(1.0, domain, seed=3).hot_keys(20_000)
    assert np.unique(keys).size == keys.size
    assert_fits(np.bincount((keys // (domain // 64 + 1)), minlength=64), np.full(64, 1 / 64))
    assert_fits(np.bincount(keys & 63, minlength=64), np.full(64, 1 / 64))
    # Neighbouring ranks tell nothing of each other: as many steps up as down, within five sigma.
    assert abs((np.diff(keys) > 0).mean() - 0.5) < 5 * math.sqrt(1 / 12 / 20_000)


def test_seeds_place_the_hot_keys_differently():
    hottest = [int(Zipf(1.0, 10**9, seed=seed).hot_keys(1)[0]) for seed in range(1000)]
    assert len(set(hottest)) == 1000
    assert_fits(np.bincount(np.array(hottest) // (10**9 // 8), minlength=8)[:8], np.full(8, 1 / 8))


def test_small_domains_reach_every_arrangement():
    arrangements = {tuple(Zipf(1.0, 3, seed=seed).hot_keys(3).tolist()) for seed in range(200)}
    assert len(arrangements) == 6


def test_the_most_frequent_keys_are_the_hot_keys():
    stream = Zipf(1.5, 10**9, seed=9, first=1)
    keys, counts = np.unique(stream.keys(200_000), return_counts=True)
    by_count = keys[np.argsort(-counts)]
    assert by_count[:5].tolist() == stream.hot_keys(5).tolist()


def test_without_permutation_keys_are_ranks_from_first():
    ranks = Zipf(1.0, 1000, seed=4).ranks(1000)
    keys = Zipf(1.0, 1000, seed=4, permute=False, first=7).keys(1000)
    assert (keys == ranks + 6).all()


@pytest.mark.parametrize("exponent", [0, 0.5, 1, 2])
@given(cuts=st.lists(st.integers(0, 300), max_size=6), start=st.integers(0, 2**60))
@settings(max_examples=25, deadline=None)
def test_draws_do_not_depend_on_the_batch_split(exponent: float, cuts: list[int], start: int):
    whole = Zipf(exponent, 10**7, seed=6).seek(start)
    parts = Zipf(exponent, 10**7, seed=6).seek(start)
    pieces = [parts.keys(cut) for cut in cuts]
    expected = whole.keys(sum(cuts))
    assert np.concatenate([np.empty(0, np.int64), *pieces]).tolist() == expected.tolist()
    assert parts.position == whole.position == start + sum(cuts)


def test_seek_reads_the_same_stream_from_anywhere():
    stream = Zipf(1.0, 10**9, seed=1)
    keys = stream.keys(1000)
    assert stream.seek(400).keys(100).tolist() == keys[400:500].tolist()


def test_draws_at_different_positions_and_seeds_are_uncorrelated():
    n = 200_000
    a, b = Zipf(0, 2**62, seed=0).ranks(n), Zipf(0, 2**62, seed=1).ranks(n)
    five_sigma = 5 / math.sqrt(n)
    assert abs(np.corrcoef(a, b)[0, 1]) < five_sigma
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < five_sigma


def test_batches_carry_keys_and_their_positions():
    batches = list(Zipf(1.0, 1000, seed=3).batches(300, 4, name="product"))
    assert [batch.schema.names for batch in batches] == [["product", "seq"]] * 4
    assert {str(field.type) for field in batches[0].schema} == {"int64"}
    assert np.concatenate([batch["seq"].to_numpy() for batch in batches]).tolist() == list(range(1200))
    keys = np.concatenate([batch["product"].to_numpy() for batch in batches])
    assert keys.tolist() == Zipf(1.0, 1000, seed=3).keys(1200).tolist()


def test_batches_without_a_count_do_not_end():
    batches = Zipf(1.0, 1000).batches(10)
    assert [next(batches).num_rows for _ in range(50)] == [10] * 50


def test_memory_does_not_grow_with_the_domain():
    def peak(domain: int) -> int:
        Zipf(1.0, domain).keys(1)  # compiles the kernels, outside of the measurement
        tracemalloc.start()
        try:
            stream = Zipf(1.0, domain)
            stream.keys(1000)
            stream.hot_keys(10)
            stream.probability(domain)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small = peak(2000)
    assert peak(10**9) < small + 4096
    assert peak(2**62) < small + 4096


BAD: Sequence[tuple[str, Callable[[], object]]] = [
    ("exponent is -1", lambda: Zipf(-1, 10)),
    ("exponent is nan", lambda: Zipf(math.nan, 10)),
    ("exponent is inf", lambda: Zipf(math.inf, 10)),
    ("exponent is '1'", lambda: Zipf("1", 10)),  # type: ignore[arg-type]
    ("domain is 0", lambda: Zipf(1, 0)),
    ("domain is 2.5", lambda: Zipf(1, 2.5)),  # type: ignore[arg-type]
    ("domain is True", lambda: Zipf(1, True)),
    (f"domain is {2**62 + 1}.*{2**62}", lambda: Zipf(1, 2**62 + 1)),
    ("seed is -1", lambda: Zipf(1, 10, seed=-1)),
    ("first is", lambda: Zipf(1, 10, first=2**63 - 9)),
    ("n is -1", lambda: Zipf(1, 10).ranks(-1)),
    ("n is -1", lambda: Zipf(1, 10).keys(-1)),
    ("n is 11.*10", lambda: Zipf(1, 10).hot_keys(11)),
    ("n is 11.*10", lambda: Zipf(1, 10).share(11)),
    ("rows is 0", lambda: Zipf(1, 10).batches(0)),
    ("count is -1", lambda: Zipf(1, 10).batches(5, -1)),
    ("name is 'seq'", lambda: Zipf(1, 10).batches(5, name="seq")),
    ("name is ''", lambda: Zipf(1, 10).batches(5, name="")),
    ("rank is 0", lambda: Zipf(1, 10).probability(0)),
    ("rank is 11", lambda: Zipf(1, 10).probability(np.array([1, 11]))),
    ("position is -1", lambda: Zipf(1, 10).seek(-1)),
]


@pytest.mark.parametrize(("message", "call"), BAD)
def test_bad_arguments_are_refused_with_their_value_and_limit(message: str, call: Callable[[], object]):
    with pytest.raises(InvalidArgument, match=message):
        call()


def test_the_last_key_may_be_the_largest_int64():
    assert Zipf(1, 10, first=2**63 - 10).hot_keys(10).max() == 2**63 - 1


def test_a_huge_exponent_leaves_one_key():
    assert (Zipf(1000.0, 2**62).ranks(10_000) == 1).all()
