"""MESH (1) as published, and the shapes of MESH Fig. 5a, 5b and 10a that follow from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.published.mesh import PublishedMeshMemory

from semistream.errors import InvalidArgument
from semistream.joins.mesh.cost_model import MeshCosts, MeshFactors, MeshTuner
from semistream.tuning.papers import MESH_MACHINE, PAPER_MACHINES

ROWS, ROW_BYTES, TUPLE_BYTES, PAGE_BYTES = 3_500_000, 120, 20, 8192  # MESH Table 3
PAGES = ROWS // (PAGE_BYTES // ROW_BYTES)
PROFILED = MeshFactors.of(PAPER_MACHINES["mesh"], page_bytes=PAGE_BYTES, values_per_result=14)


def tuner(limit: int, factors: MeshFactors = MESH_MACHINE) -> MeshTuner:
    memory = PublishedMeshMemory(limit, PAGES, PAGE_BYTES, TUPLE_BYTES, fudge=2.0)
    return MeshTuner(MeshCosts(factors, rows_per_page=PAGE_BYTES // ROW_BYTES), memory)


def test_it_is_mesh_1() -> None:
    memory = PublishedMeshMemory(10**9, 1000, 4096, 20, fudge=1.5)
    b, w = 10, 7
    assert memory.total(b, w) == b * 4096 + w * 20 + w * 100 * 8 + w * 1.5 * 100 * 20
    exact = PublishedMeshMemory(memory.total(b, w), 1000, 4096, 20, fudge=1.5)
    assert exact.fits(b, w)
    assert not exact.fits(b, w + 1)
    assert exact.most_rows(b) == pytest.approx(w)


def test_the_memory_for_a_rate_has_one_least_value_over_b() -> None:
    """MESH Fig. 5a: a small b reads badly, so that w must be large; a large b is a large buffer."""
    rate, model = 5000.0, tuner(10**12)
    pages = np.unique(np.geomspace(1, PAGES, 60).astype(int)).tolist()
    rows = [model.costs.least_rows(rate, b) for b in pages]
    totals = [model.memory.total(b, w) for b, w in zip(pages, rows, strict=True) if w is not None]
    least = int(np.argmin(totals))
    assert 0 < least < len(totals) - 1
    assert totals[0] > 2 * totals[least] < totals[-1]
    chosen = model.least_memory(rate)
    assert chosen is not None
    assert model.memory.total(chosen.pages_per_step, chosen.rows_per_step) <= totals[least]


def test_the_rate_for_a_memory_has_one_greatest_value_over_b() -> None:
    """MESH Fig. 5b and 10a: with 21 MB the rate rises to a maximum and drops rapidly for large b."""
    model = tuner(21 << 20)
    pages = np.unique(np.geomspace(1, (21 << 20) // PAGE_BYTES - 1, 60).astype(int)).tolist()
    rates = [model.service_rate(b, model.memory.most_rows(b)) for b in pages]
    best = int(np.argmax(rates))
    assert 0 < best < len(pages) - 1
    assert np.all(np.diff(rates[best:]) < 0)
    assert rates[-1] < 0.05 * rates[best]
    chosen = model.greatest_rate()
    assert model.service_rate(chosen.pages_per_step, chosen.rows_per_step) > 0.99 * rates[best]


@pytest.mark.parametrize("factors", [MESH_MACHINE, PROFILED], ids=["factors", "profile"])
@pytest.mark.parametrize(("megabytes", "printed"), [(2, 3_500), (4, 6_000), (40, 26_000)])
def test_the_rates_that_the_paper_prints(megabytes: int, printed: int, factors: MeshFactors) -> None:
    """MESH 5.2, Fig. 10b: more memory brings ever less."""
    model = tuner(megabytes << 20, factors)
    chosen = model.greatest_rate()
    assert model.service_rate(chosen.pages_per_step, chosen.rows_per_step) == pytest.approx(printed, rel=0.1)


@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_nonsense_is_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match="page_bytes is"):
        PublishedMeshMemory(10, 10, value, 10)  # type: ignore[arg-type]
