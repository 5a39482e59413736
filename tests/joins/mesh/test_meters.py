"""Rates and costs as a running join measures them."""

from __future__ import annotations

import pytest

from semistream.joins.mesh.adaptive import CostMeter, RateMeter


def test_a_steady_stream_has_its_rate_whatever_its_batches_are() -> None:
    for every_s in (0.001, 0.5, 100.0):
        meter = RateMeter(half_life_s=2)
        for i in range(50):
            meter.count(int(every_s * 3000), now_s=i * every_s)
        assert meter.rate(now_s=49 * every_s) == pytest.approx(3000)


def test_half_of_a_change_is_seen_after_a_half_life() -> None:
    meter = RateMeter(half_life_s=2)
    for i in range(2000):
        meter.count(10 if i < 1000 else 20, now_s=i * 0.1)
        if i in (1000 + 20, 1000 + 40):
            assert meter.rate(now_s=i * 0.1) == pytest.approx({1020: 150, 1040: 175}[i], rel=0.02)
    assert meter.rate(now_s=199.9) == pytest.approx(200)


def test_silence_lowers_the_rate() -> None:
    meter = RateMeter(half_life_s=1)
    for i in range(100):
        meter.count(10, now_s=i * 0.1)
    seen = [meter.rate(now_s=9.9 + passed) for passed in (0, 1, 2, 10)]
    assert seen[0] == pytest.approx(100)
    assert seen[0] > seen[1] > seen[2] > seen[3] >= 0
    assert seen[3] < 1


def test_there_is_no_rate_before_time_has_passed() -> None:
    meter = RateMeter(half_life_s=1)
    assert meter.rate(now_s=0.0) is None
    meter.count(1000, now_s=5.0)
    assert meter.rate(now_s=9.0) is None  # when the first batch began to come is not known
    meter.count(10, now_s=5.0)
    assert meter.rate(now_s=5.0) is None
    meter.count(10, now_s=4.0)  # a clock that was set back
    assert meter.rate(now_s=4.0) is None


def test_costs_are_compared_in_all_and_old_ones_fade() -> None:
    meter = CostMeter(half_life_s=2)
    assert meter.ratio == 1.0
    meter.count(90.0, 1.0)  # the first one: kernels are loaded
    assert meter.ratio == 1.0
    meter.count(0.0, 1.0)
    assert meter.ratio == 1.0
    for _ in range(100):
        meter.count(0.001, 0.001)
        meter.count(0.011, 0.003)
    assert meter.ratio == pytest.approx(3.0, rel=0.01)
    for _ in range(40):
        meter.count(0.5, 1.0)
    assert meter.ratio == pytest.approx(0.5, rel=0.01)
