"""The kernels alone: uneven words are redrawn, the permutation undoes nothing and moves nothing out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.datasets.kernels import draw_uniform_ranks, draw_zipf_ranks, permute_ranks


@given(
    domain=st.integers(1, 600),
    round_keys=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=8).filter(lambda keys: len(keys) % 2 == 0),
)
@settings(max_examples=150, deadline=None)
def test_permutation_is_a_bijection_for_any_round_keys(domain: int, round_keys: list[int]):
    keys = np.array(round_keys, dtype=np.uint64)
    keys[1::2] |= np.uint64(1)
    ranks = np.arange(1, domain + 1, dtype=np.int64)
    out = np.empty_like(ranks)
    permute_ranks(ranks, domain, (domain - 1).bit_length(), keys, 0, out)
    assert sorted(out.tolist()) == list(range(domain))
    permute_ranks(ranks, domain, (domain - 1).bit_length(), keys, 0, ranks)
    assert (ranks == out).all()


@pytest.mark.parametrize("domain", [2**61 + 1, 3 * 2**60, 2**62])
def test_uniform_draws_have_no_modulo_bias(domain: int):
    out = np.empty(300_000, dtype=np.int64)
    draw_uniform_ranks(np.uint64(7), 0, domain, (domain - 1).bit_length(), out)
    # A remainder or an unchecked word would favour, or leave, the part that does not fit: five sigma.
    assert abs((out <= domain // 2).mean() - 0.5) < 5 * 0.5 / np.sqrt(out.size)
    assert out.min() >= 1
    assert out.max() <= domain


@pytest.mark.parametrize("exponent", [1e-12, 0.5, 1 - 1e-12, 1.0, 1 + 1e-12, 3.0, 900.0])
@pytest.mark.parametrize("domain", [1, 2, 2**62])
def test_ranks_stay_inside_the_domain_for_extreme_arguments(exponent: float, domain: int):
    out = np.zeros(20_000, dtype=np.int64)
    draw_zipf_ranks(np.uint64(2**64 - 1), 2**63 - 20_001, exponent, domain, out)
    assert out.min() >= 1
    assert out.max() <= domain


def test_exponents_beside_one_draw_as_one_does():
    draws = []
    for exponent in (1 - 1e-12, 1.0, 1 + 1e-12):
        out = np.empty(50_000, dtype=np.int64)
        draw_zipf_ranks(np.uint64(3), 0, exponent, 10**6, out)
        draws.append(out)
    assert (draws[0] == draws[1]).mean() > 0.999
    assert (draws[2] == draws[1]).mean() > 0.999
