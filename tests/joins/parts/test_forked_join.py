"""A join that a child inherits by fork: it refuses there, and nothing in the child touches the parent's join."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream
from semistream import JoinedStream, Relation
from semistream.errors import JoinInherited
from tests.relation.child_process import run_child

ROWS = 100_000
HUNG_S = 20


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("forks")
    table = pa.table({"id": np.arange(ROWS), "value": np.arange(ROWS) * 7})
    Relation.build(table, folder / "r", key="id", page_bytes=4096)
    pq.write_table(table, folder / "r.parquet", row_group_size=5_000)
    return {"relation": str(folder / "r"), "parquet": str(folder / "r.parquet")}


def _close(stream: JoinedStream) -> None:
    stream.close()


def _leave(stream: JoinedStream) -> None:
    assert stream.stats.rows_in
    sys.exit(0)


def _go_on(stream: JoinedStream) -> None:
    with pytest.raises(JoinInherited, match=r"process \d+ opened .* process \d+.*Open a join"):
        next(stream)


def _fork(child: Callable[[JoinedStream], None], stream: JoinedStream) -> int:
    """Run a function in a fork, which then ends as a Python program does; return its exit code, -14 if it hung."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(HUNG_S)
        code = 0
        try:
            child(stream)
        except Exception:
            traceback.print_exc()
            code = 1
        os._exit(code)  # SystemExit goes up, as in a program: it drops the join and runs the handlers at exit
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _forks(path: str, operator: str, memory: str) -> list[int]:
    """Fork in the middle of a join, three times; return the exit codes of the children, then the rows joined."""
    keys = np.random.default_rng(3).integers(0, ROWS, 60_000)
    batches = [pa.record_batch({"id": keys[i : i + 5_000]}) for i in range(0, keys.size, 5_000)]
    stream = semistream.join(batches, path, on="id", operator=operator, memory=memory)
    codes, rows = [], 0
    children = [_close, _go_on, _leave]
    for count, batch in enumerate(stream):
        rows += batch.num_rows
        assert (batch["value"].to_numpy() == batch["id"].to_numpy() * 7).all()
        if count % 3 == 1 and children:
            codes.append(_fork(children.pop(), stream))
    return [*codes, rows]


@pytest.mark.parametrize("operator", ["engine", "sweep", "mesh", "cmesh", "hybrid", "index", "nested_loop"])
def test_the_parents_join_goes_on_whatever_its_children_do(operator: str, paths: dict[str, str]) -> None:
    assert run_child(_forks, paths["relation"], operator, "1MB") == (0, [0, 0, 0, 60_000])


def test_a_join_with_parquet_goes_on_as_well(paths: dict[str, str]) -> None:
    assert run_child(_forks, paths["parquet"], "mesh", "6MB") == (0, [0, 0, 0, 60_000])
