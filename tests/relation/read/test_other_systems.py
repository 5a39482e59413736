"""Relations and joins where the system has no direct reads, no eventfd, no advice for memory and no flock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MACOS = """
import mmap, os, sys
for name in ("O_DIRECT", "eventfd", "eventfd_read", "eventfd_write", "EFD_CLOEXEC", "EFD_SEMAPHORE", "posix_fadvise"):
    delattr(os, name)
for name in [each for each in dir(mmap) if each.startswith("MADV_") and "HUGEPAGE" in each]:
    delattr(mmap, name)
"""
WINDOWS = (
    MACOS
    + """
import warnings
import duckdb, lmdb, numba, numpy, pyarrow.dataset, pyarrow.parquet  # they know their system
for name in ("preadv", "pread", "pwrite", "O_CLOEXEC", "getuid"):
    delattr(os, name)
for name in [each for each in dir(mmap) if each.startswith(("MADV_", "MAP_"))]:
    delattr(mmap, name)
sys.modules["fcntl"] = None
warnings.filterwarnings("ignore", "only soft file lock is available")
"""
)
WORK = """
from pathlib import Path
import numpy as np
import pyarrow as pa
import semistream
from semistream.errors import InvalidArgument, RelationLocked
from semistream.storage.locks import writer_lock
from semistream.tuning.candidates import OPERATORS

folder = Path(sys.argv[1])
products = pa.table({"id": np.arange(20_000), "name": [f"product {i}" for i in range(20_000)]})
relation = semistream.Relation.build(products, folder / "r", key="id")
orders = pa.table({"product": np.arange(-100, 20_000, 7)})
for operator in ["auto", *OPERATORS]:
    joined = semistream.join(orders.to_batches(500), relation, on={"product": "id"}, operator=operator, memory="8MB")
    assert joined.read_all().num_rows == 2857, operator
assert relation.update(deletes=[0, 5]).num_rows == 19_998
with writer_lock(relation.path):
    try:
        relation.update(deletes=[1], wait_s=0)
    except RelationLocked as refused:
        assert str(os.getpid()) in str(refused), refused
    else:
        raise AssertionError("two writers")
assert relation.refreshed().vacuum() and relation.refreshed().verify().rows == 19_998
try:
    semistream.join(orders, relation, on={"product": "id"}, disk="direct", memory="8MB")
except InvalidArgument as refused:
    assert "this system has no direct reads; give 'auto' or 'buffered'" in str(refused)
else:
    raise AssertionError("direct reads")
print("done")
"""


@pytest.mark.parametrize("system", [MACOS, WINDOWS], ids=["macOS", "Windows"])
def test_joins_run_without_what_only_linux_has(system: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", system + WORK, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "done\n"
