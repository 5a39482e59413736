"""start: how long a new user waits, after ``pip install`` of the wheel in a fresh environment."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.harness.report import Report

_ROOT = Path(__file__).parents[1]
_REPEAT = 5
_MOST_JOIN_S, _MOST_HELP_S, _MOST_FIRST_BATCH = 3.0, 0.3, 3.0
_BATCHES, _BATCH_ROWS, _PRODUCTS = 8, 100_000, 1_000_000
_PIPELINE = """
name: start
source:
  {format: parquet, path: orders, schema: {order: bigint, product: bigint, amount: double}, files_per_batch: 1}
steps:
  - join: {relation: products, on: {product: id}}
sink: {format: delta, path: warehouse/orders}
unmatched: {format: delta, path: warehouse/unmatched}
quarantine: {format: delta, path: warehouse/quarantine}
checkpoint: checkpoint
memory: 16MB
"""
_MAKE = f"""
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, os, semistream
rng = np.random.default_rng(1)
products = pa.table({{"id": np.arange({_PRODUCTS}), **{{f"c{{i}}": rng.random({_PRODUCTS}) for i in range(8)}}}})
semistream.Relation.build(products, "products", key="id")
os.mkdir("orders")
for i in range({_BATCHES}):
    n = {_BATCH_ROWS}
    orders = pa.table({{"order": np.arange(n), "product": rng.integers(0, {_PRODUCTS}, n), "amount": rng.random(n)}})
    pq.write_table(orders, f"orders/{{i}}.parquet")
"""


def run(scale: float, out: Path) -> Report:
    report = Report("start", scale, "a wheel installed in a fresh environment, with empty caches")
    with TemporaryDirectory(dir=out if out.is_dir() else None) as folder:
        user = _User(Path(folder), _wheel())
        example = _example()
        joins = [user.seconds(user.python, "-c", example) for _ in range(_REPEAT)]
        helps = [user.seconds(user.bin / "semistream", "--help") for _ in range(_REPEAT)]
        report.add("README's example, the first time", [1 / joins[0]], unit="runs/s", note=f"{joins[0]:.2f} s")
        report.add("README's example, later", [1 / s for s in joins[1:]], unit="runs/s", note=_middle(joins[1:]))
        report.add("semistream --help", [1 / s for s in helps], unit="runs/s", note=_middle(helps))
        report.require(f"README's example in {_MOST_JOIN_S} s, the first time", 1.0, _MOST_JOIN_S / joins[0])
        report.require(f"semistream --help in {_MOST_HELP_S} s", 1.0, _MOST_HELP_S / statistics.median(helps))
        batches = _batches(user)
        steady = statistics.median(batches[2:])
        report.add("first micro-batch of a pipeline", [1 / batches[0]], unit="batches/s", note=f"{batches[0]:.2f} s")
        report.add("steady ones", [1 / s for s in batches[2:]], unit="batches/s", note=_middle(batches[2:]))
        report.require(
            f"the first micro-batch takes at most {_MOST_FIRST_BATCH:g} steady ones",
            1.0,
            _MOST_FIRST_BATCH * steady / batches[0],
        )
        own = [path for path in (user.home / ".cache").rglob("*") if path.is_file() and "kernels" in path.parts]
        report.remark(f"kernels compiled by the user: {len([path for path in own if path.parent.name != 'locks'])}")
    return report


class _User:
    """A user with an empty home folder, and an environment into which only the wheel was installed."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.home, self.bin = folder / "home", folder / "environment" / "bin"
        self.python = self.bin / "python"
        self.home.mkdir()
        venv.create(self.bin.parent, with_pip=True)
        constraints = str(_ROOT / "constraints.txt")
        subprocess.run(
            [self.python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[spark,delta]"], check=True
        )

    def run(self, *command: str | Path) -> str:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG", "NUMBA"))
        }
        environment |= {"HOME": str(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        ran = subprocess.run(command, cwd=self.home, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"{command[0]} failed: {ran.stderr[-2000:]}")
        return ran.stdout

    def seconds(self, *command: str | Path) -> float:
        begin = perf_counter()
        self.run(*command)
        return perf_counter() - begin


def _wheel() -> Path:
    """Make the wheel anew, as ``make wheel`` does."""
    subprocess.run(["make", "--silent", "wheel", f"BIN={Path(sys.executable).parent}"], cwd=_ROOT, check=True)
    return max((_ROOT / "dist").glob("semistream-*.whl"), key=lambda wheel: wheel.stat().st_mtime)


def _example() -> str:
    """Return README's embedded example."""
    (example,) = re.findall(r"```python\n(import numpy.*?)```", (_ROOT / "README.md").read_text(), re.DOTALL)
    return "import shutil; shutil.rmtree('products', ignore_errors=True)\n" + example


def _batches(user: _User) -> list[float]:
    """Run a pipeline, and return the seconds of its micro-batches."""
    user.run(user.python, "-c", "import shutil; shutil.rmtree('products', ignore_errors=True)")
    user.run(user.python, "-c", _MAKE)
    (user.home / "start.yaml").write_text(_PIPELINE)
    user.run(user.bin / "semistream", "run", "start.yaml", "--once")
    (metrics,) = (user.home / "checkpoint").glob("spark*.jsonl")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line["seconds"] for line in lines]


def _middle(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
