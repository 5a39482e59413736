"""HYBRID as published: the factor k, and the shape of HYBRID Fig. 6."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.published.hybrid import PublishedHybridModel

from semistream import MeshFactors
from semistream.costs.key_frequencies import KeyFrequencies


def test_k_comes_down_to_two_without_skew() -> None:
    factors = []
    for waiting_rows in (4_000, 20_000, 100_000, 500_000):
        model = PublishedHybridModel(KeyFrequencies.uniform(2_000_000), 2_000_000, 500, waiting_rows)
        factors.append(model.served_rows() / model.published_served_rows(k=1.0))
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx(2, rel=1e-3)
    assert factors[0] > 2.4


def test_the_rate_rises_and_falls_with_the_disk_buffer() -> None:
    """HYBRID 4.5 and Fig. 6: R of 2 million tuples of 120 bytes, 50 MB, exponent 1; a small disk buffer serves few, a
    large one takes long to read and leaves less memory for the stream.
    """
    factors = MeshFactors(0.008, 0.0001, expire_s=1e-6, stream_s=1e-6, add_s=2e-6, probe_s=1e-6, output_s=2e-6)
    memory, row_bytes, tuple_bytes, page = 50 << 20, 120, 20, 8192
    sizes = [page << shift for shift in range(13)]
    rates = []
    for size in sizes:
        waiting = (memory - size) / (tuple_bytes * 8)  # the paper's hash table takes many times a tuple's bytes
        model = PublishedHybridModel(KeyFrequencies.zipf(1.0, 2_000_000), 2_000_000, size // row_bytes, waiting)
        rates.append(model.rate(factors, size / page))
    best = int(np.argmax(rates))
    assert 0 < best < len(sizes) - 1
    assert np.all(np.diff(rates[: best + 1]) > 0)
    assert np.all(np.diff(rates[best:]) < 0)
