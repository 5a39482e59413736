"""The budget is real: a process that joins a relation far larger than its budget does not grow beyond it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream import Relation

BUDGET = 16_000_000
# The allocator's slack and what the interpreter does besides; a relation of 120 MB would not hide in it.
SLACK = 16_000_000

CHILD = """
import sys, numpy as np, psutil, pyarrow as pa, semistream

path, operator, rows, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def batches(count, size):
    generator = np.random.default_rng(1)
    for _ in range(count):
        yield pa.record_batch({"k": generator.integers(0, rows, size), "x": generator.random(size)})

def drive(count, size):
    peak, seen = 0, 0
    for batch in semistream.join(batches(count, size), path, on="k", operator=operator, memory=budget):
        seen += batch.num_rows
        peak = max(peak, psutil.Process().memory_info().rss)
    return peak, seen

drive(1, 1)  # compiles the kernels and loads the libraries
before = psutil.Process().memory_info().rss
peak, seen = drive(4, 20_000)
print(peak - before, seen)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    rows = 1_000_000
    table = pa.table({"k": np.arange(rows)} | {f"c{i}": np.arange(rows) * i for i in range(14)})
    return Relation.build(table, tmp_path_factory.mktemp("large") / "r", key="k")


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["mesh", "adaptive_mesh", "hybrid", "index", "sweep"])
def test_resident_memory_stays_within_the_budget(large: Relation, operator: str) -> None:
    assert large.nbytes > 7 * BUDGET
    assert growth(large.path, operator, large.num_rows) <= BUDGET + SLACK


@pytest.mark.slow
def test_resident_memory_stays_within_the_budget_over_parquet(large: Relation, tmp_path: Path) -> None:
    pq.write_table(large.scan().read_all(), tmp_path / "r.parquet", row_group_size=20_000)
    assert growth(tmp_path / "r.parquet", "mesh", large.num_rows) <= BUDGET + SLACK


def growth(path: Path, operator: str, rows: int) -> int:
    """Bytes by which a process grows that joins in `BUDGET`."""
    script = [sys.executable, "-c", CHILD, str(path), operator, str(rows), str(BUDGET)]
    done = subprocess.run(script, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    grown, seen = map(int, done.stdout.split())
    assert seen == 80_000
    return grown
