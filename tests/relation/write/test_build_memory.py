"""Building stays within its memory, however much larger the data is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import RelationError
from semistream.relation import Relation
from tests.relation.child_process import run_child
from tests.relation.row_sets import row_set, scratch_folder

MEMORY = 128 * 10**6
ROWS_PER_BATCH = 20_000


def _batches(nbytes: int) -> Iterator[pa.RecordBatch]:
    """Random keys and 14 columns of payload, made as they are asked for."""
    rng, first = np.random.default_rng(0), 0
    while nbytes > 0:
        columns = {f"c{i}": np.arange(first, first + ROWS_PER_BATCH) + i for i in range(14)}
        batch = pa.record_batch({"k": rng.integers(0, 2**62, ROWS_PER_BATCH), **columns})
        first += ROWS_PER_BATCH
        nbytes -= batch.nbytes
        yield batch


def _resident(peak: bool) -> int:
    found = re.search(r"VmHWM:\s+(\d+)" if peak else r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def _growth(path: Path, nbytes: int) -> tuple[int, int]:
    Relation.build(_batches(1), path / "warm", key="k")  # memory of modules loaded once is not the build's
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _resident(peak=False)
    relation = Relation.build(_batches(nbytes), path / "r", key="k", memory=MEMORY)
    return _resident(peak=True) - before, relation.num_rows


@pytest.mark.slow
def test_build_of_three_times_its_memory_stays_within_it(tmp_path: Path) -> None:
    code, result = run_child(_growth, tmp_path, 400 * 10**6)
    assert code == 0
    growth, rows = result
    assert rows * 15 * 8 >= 400 * 10**6
    assert growth <= MEMORY
    relation = Relation.open(tmp_path / "r")
    sums = [0, 0]
    last = -1
    for batch in relation.scan(["k", "c0"]):
        keys = batch["k"].to_numpy()
        assert keys[0] >= last
        assert (np.diff(keys) >= 0).all()
        last = keys[-1]
        sums[0] += batch.num_rows
        sums[1] += int(batch["c0"].to_numpy().sum())
    assert sums == [rows, rows * (rows - 1) // 2]


def test_rows_too_wide_for_the_memory_are_refused_with_the_memory_they_need() -> None:
    batches = (pa.record_batch({"k": np.arange(1000), "s": ["x" * 4000] * 1000}) for _ in range(60))
    with scratch_folder() as folder:
        with pytest.raises(
            RelationError, match=r"Out of Memory.*raise memory: rows of about 40\d\d bytes need 1[45]\d{8}"
        ):
            Relation.build(batches, folder / "r", key="k", memory=MEMORY)
        assert list(folder.iterdir()) == []


def test_sort_of_many_equal_keys_loses_none() -> None:
    table = pa.table({"k": np.zeros(200_000, np.int64), "v": np.arange(200_000)})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", memory=MEMORY)
        assert np.array_equal(np.sort(relation.scan(["v"]).read_all()["v"].to_numpy()), np.arange(200_000))
        assert row_set(relation.lookup([1])) == row_set([])
