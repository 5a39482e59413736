"""walk: files, functions and calls of one ``semistream.join`` with ``operator="auto"``, and time to the first push."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import semistream
from benchmarks.harness.report import Report

_TIMES = 20
_PACKAGE = str(Path(semistream.__file__).parent)
_Function = tuple[str, str]


class _Walk:
    """Profiler that counts calls of semistream's own functions, before and after the first push."""

    def __init__(self) -> None:
        self.before: Counter[_Function] = Counter()
        self.after: Counter[_Function] = Counter()
        self._counts = self.before

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_PACKAGE):
            return
        if code.co_name == "push" and isinstance(frame.f_locals.get("self"), semistream.SemiStreamJoin):
            self._counts = self.after
        self._counts[code.co_filename.removeprefix(_PACKAGE), code.co_qualname] += 1


def _watch(run: Any) -> _Walk:
    walk = _Walk()
    sys.setprofile(walk)
    try:
        run()
    finally:
        sys.setprofile(None)
    return walk


class _Pushed(Exception):
    """Raised in place of the first push."""


def _seconds_to_push(start: Any) -> float:
    """Return the seconds from the call of ``join`` to the first push, which is replaced by an exception."""
    with patch.object(semistream.SemiStreamJoin, "push", side_effect=_Pushed):
        begun = perf_counter()
        joined = start()
        with suppress(_Pushed):
            next(joined)
        took = perf_counter() - begun
    joined.close()
    return took


def run(scale: float, out: Path) -> Report:
    rows, tuples = max(int(1_000_000 * scale), 1000), 50_000
    rng = np.random.default_rng(7)
    report = Report("walk", scale, f"R of {rows:,} rows, a stream of {tuples:,} tuples, memory 10 %, operator auto")
    with tempfile.TemporaryDirectory(dir=out if out.is_dir() else None) as folder:
        products = pa.table({"id": np.arange(rows), **{f"c{i}": rng.random(rows) for i in range(6)}})
        relation = semistream.Relation.build(products, f"{folder}/r", key="id")
        orders = pa.table({"product": rng.integers(0, rows, tuples), "amount": rng.random(tuples)})

        def start() -> semistream.JoinedStream:
            return semistream.join(orders.to_batches(5_000), relation, on={"product": "id"}, memory="10%")

        start().read_all()  # compiles kernels, and verifies R's pages
        walk = _watch(lambda: start().read_all())
        seconds = [_seconds_to_push(start) for _ in range(_TIMES)]
    touched = walk.before + walk.after
    named = Counter(
        {function: count for function, count in touched.items() if "<" not in function[1].rpartition(".")[2]}
    )
    report.remarks += [
        f"files touched: {len({file for file, _ in touched})}, functions: {len(named)}, calls: {touched.total():,}",
        f"before the first push: {len({file for file, _ in walk.before})} files, {len(walk.before)} functions, "
        f"{walk.before.total():,} calls ({walk.before.total() / touched.total():.0%})",
        f"from the call to the first push: median {statistics.median(seconds) * 1e3:.2f} ms of {_TIMES} "
        f"({min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f})",
        "most calls before it: " + ", ".join(f"{name} {count}" for (_, name), count in walk.before.most_common(12)),
    ]
    report.add("joins opened", [1 / took for took in seconds], unit="joins/s")
    return report
