"""Pages of mapped files: those that fit in the system's memory are not read from the disk."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from semistream.costs import identity as page_cache
from semistream.costs.identity import page_cache_bytes
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.machine import Machine, OperatorCosts
from semistream.costs.prediction import predict
from semistream.costs.workload import Workload
from semistream.joins.lookup.nested_loop import NestedLoopModel
from semistream.joins.sweep.cost_model import SweepModel
from semistream.relation import DiskCosts

PAGES, PAGE_BYTES = 1000, 8192
WORKLOAD = Workload(KeyFrequencies.zipf(0, 64_000), 64_000, PAGES, PAGE_BYTES)
DISK, LOOKED_UP = DiskCosts(seek_s=1e-3), OperatorCosts(tuple_s=1e-6, page_s=1e-5)


@pytest.mark.parametrize(("share", "from_disk"), [(0.0, 1.0), (0.25, 0.75), (0.5, 0.5), (1.0, 0.0), (7.0, 0.0)])
def test_look_ups_read_what_the_page_cache_has_no_room_for(share, from_disk):
    operators = {"nested_loop": LOOKED_UP}
    machine = Machine("here", DISK, operators=operators, page_cache_bytes=share * PAGES * PAGE_BYTES)
    found = predict("nested_loop", NestedLoopModel(), WORKLOAD, machine, memory_bytes=1)
    pages = found.work.pages
    assert pages == pytest.approx(1, rel=0.01)
    assert found.disk_s == pytest.approx(from_disk * pages * 1e-3)
    assert found.processor_s == pytest.approx(1e-6 + pages * 1e-5), "a page in memory is looked at all the same"
    assert found.rate == pytest.approx(1 / (found.disk_s + found.processor_s))


def test_operators_that_read_past_the_page_cache_have_nothing_of_it():
    model = SweepModel(10_000, level_rows=100, run_bytes=8 * PAGE_BYTES, trims=True, row_bytes=lambda _: 10)
    without, with_it = (Machine("here", DISK, page_cache_bytes=held) for held in (0.0, 1e12))
    work = model.work(WORKLOAD, DISK)
    assert with_it.disk_s(work, WORKLOAD) == without.disk_s(work, WORKLOAD) > 0


def test_the_system_says_how_much_memory_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       24684136 kB\nMemFree:        18575380 kB\nMemAvailable:   22384988 kB\n")
    monkeypatch.setattr(page_cache, "MEMORY", file)
    assert page_cache_bytes() == 22_384_988 * 1024
    file.write_text("MemTotal:       24684136 kB\n")
    assert page_cache_bytes() == 0
    file.unlink()
    assert page_cache_bytes() == 0


@pytest.mark.parametrize("held", [-1.0, math.nan, math.inf])
def test_a_page_cache_of_no_size_is_refused(held):
    with pytest.raises(ValueError, match="page_cache_bytes"):
        Machine("nowhere", DISK, page_cache_bytes=held)
