"""What a sweep reads for a stream that goes on and on, against the sweep itself on a simulated disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream import Relation
from semistream.errors import InvalidArgument
from semistream.joins.sweep import SweepJoin
from semistream.relation import DiskCosts, SimulatedDisk
from semistream.streams import Zipf
from semistream.tuning.frequencies import KeyFrequencies
from semistream.tuning.sweep_model import SweepModel

ROWS = 60_000
SCHEMA = pa.schema([("key", pa.int64()), ("seq", pa.int64())])


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("sweep model") / "r"
    columns = {f"c{i}": np.arange(ROWS) for i in range(14)}
    return Relation.build(pa.table({"key": range(ROWS), **columns}), path, key="key", page_bytes=4096)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("memory", [0.05, 0.1, 0.25])
@pytest.mark.parametrize(("seek_s", "transfer_s"), [(0.008, 0.0001), (0.0001, 0.00002)])
def test_the_rate_on_a_simulated_disk(
    relation: Relation, exponent: float, memory: float, seek_s: float, transfer_s: float
) -> None:
    stream = Zipf(exponent, ROWS, seed=4)
    disk = SimulatedDisk(seek_s=seek_s, transfer_s=transfer_s)
    with SweepJoin(relation, SCHEMA, on="key", memory=int(memory * relation.nbytes), disk=disk) as join:

        def push(tuples: float) -> tuple[int, float]:
            """So many more tuples; gives how many there were, and how long the disk took for them."""
            before, read_s = join.stats.rows_in, seconds(join)
            while join.stats.rows_in < before + tuples:
                for _ in join.push(next(stream.batches(max(join.capacity // 10, 100)))):
                    pass
            return join.stats.rows_in - before, seconds(join) - read_s

        push(2 * join.pass_rows)
        tuples, read_s = push(6 * join.pass_rows)
        shape = join.pass_rows, join.most_waiting, join.run_bytes
    page_bytes = relation.nbytes // relation.num_pages
    model = SweepModel(KeyFrequencies.zipf(exponent, ROWS), relation.num_pages, page_bytes, *shape)
    rate = model.disk_rate(DiskCosts(seek_s, transfer_s_per_page=transfer_s))
    assert rate == pytest.approx(tuples / read_s, rel=0.05)


def seconds(join: SweepJoin) -> float:
    return join._disk.costs.request_s(0, join.stats.pages_read, join.stats.pages_seek)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="paced_rows is 0"):
        SweepModel(KeyFrequencies.uniform(10), 10, 4096, 0, 10, 4096)
