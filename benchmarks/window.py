"""window: join of two streams in a window larger than the memory, with every policy, also on Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness.report import Report
from benchmarks.spark import spark_window
from semistream.datasets import Zipf
from semistream.windows import Expected, GivenProbabilities, Life, Policy, Prob, Random, WindowJoin

FULL_MEMORY = 1_000_000  # tuples
FULL_BATCH = 100_000
_WARM_MEMORIES = 1.5  # tuples for the warm-up, relative to the memory
_REPEAT = 3  # timed stretches, each about as many tuples as the memory holds
_LEFT = pa.schema([("key", pa.int64()), ("left", pa.int64())])
_RIGHT = pa.schema([("key", pa.int64()), ("right", pa.int64())])
_KEPT_WINDOW, _KEPT_ROWS = 10_000, 60_000
_KEPT_DOMAIN = 10_000
_SHARES = (0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Streams:
    """Two streams of equal length, in batches."""

    left: list[pa.RecordBatch]
    right: list[pa.RecordBatch]

    @property
    def probabilities(self) -> GivenProbabilities:
        return GivenProbabilities.of_streams(
            pa.Table.from_batches(self.left), pa.Table.from_batches(self.right), on="key"
        )


def run(scale: float, folder: Path) -> Report:
    folder.mkdir(parents=True, exist_ok=True)
    memory, batch = max(int(FULL_MEMORY * scale), 1000), max(int(FULL_BATCH * scale), 200)
    report = Report(
        "window",
        scale,
        f"two streams of int64 keys, a memory of {memory:,} tuples, a window of {2 * memory:,} instants",
    )
    rows = int((_WARM_MEMORIES + _REPEAT) * memory / 2 / batch) * batch
    learnt = None
    for name, exponent, domain in (("uniform", 0.0, memory), ("Zipf 0.5", 0.5, 10 * memory)):
        streams = _streams(exponent, domain, rows, batch)
        given = streams.probabilities
        rates = {
            "PROB, learnt": _rates(streams, Prob(), memory),
            "PROB, given": _rates(streams, Prob(given), memory),
            "EXPECTED, given": _rates(streams, Expected(given), memory),
            "RANDOM": _rates(streams, Random(), memory),
        }
        for policy, (per_second, results) in rates.items():
            measured = report.add(
                f"{policy}; {name} over {domain:,} keys",
                per_second,
                unit="tuples/s",
                note=f"{results:.2f} results per tuple",
            )
            if policy.startswith("PROB"):
                learnt = measured.median if learnt is None else min(learnt, measured.median)
    assert learnt is not None
    report.require(f"PROB with a memory of {memory:,} tuples, million tuples/s on one core", 1.0, learnt / 1e6)
    _report_kept(report, scale)
    _report_papers_grid(report)
    spark_window.measure(report, scale, folder)
    return report


def _streams(exponent: float, domain: int, rows: int, batch: int) -> Streams:
    """Draw two streams with the same frequent keys."""
    keys = [Zipf(exponent, domain, seed=7).seek(first).keys(rows) for first in (0, 10**9)]
    batches = [
        [pa.record_batch([pa.array(k[i : i + batch]), pa.array(np.arange(i, i + batch))], schema=schema)
         for i in range(0, rows, batch)]
        for k, schema in zip(keys, (_LEFT, _RIGHT), strict=True)
    ]  # fmt: skip
    return Streams(*batches)


def _rates(streams: Streams, policy: Policy, memory: int) -> tuple[list[float], float]:
    """Return tuples/s of each stretch after the memory has filled, and results per tuple."""
    join = WindowJoin(_LEFT, _RIGHT, on="key", window=2 * memory, memory=memory, policy=policy)
    rates: list[float] = []
    results = timed = 0
    pushed, stretch, start = 0, 0, None
    for left, right in zip(streams.left, streams.right, strict=True):
        found = sum(b.num_rows for b in join.push_left(left)) + sum(b.num_rows for b in join.push_right(right))
        pushed += left.num_rows + right.num_rows
        if start is None:
            if pushed >= _WARM_MEMORIES * memory:
                start = time.perf_counter()
            continue
        results, timed, stretch = results + found, timed + 2 * left.num_rows, stretch + 2 * left.num_rows
        if stretch >= memory * 9 // 10:
            rates.append(stretch / (time.perf_counter() - start))
            stretch, start = 0, time.perf_counter()
    return rates, results / timed


def _report_kept(report: Report, scale: float) -> None:
    """Report the share of the exact result kept, with Zipf 1, by policy and by memory as a share of both windows."""
    window = max(int(_KEPT_WINDOW * min(scale, 1.0)), 100)
    rows = _KEPT_ROWS * window // _KEPT_WINDOW
    streams = _streams(1.0, _KEPT_DOMAIN * window // _KEPT_WINDOW, rows, rows)
    given = streams.probabilities
    policies: dict[str, Policy | None] = {
        "PROB": Prob(given), "EXPECTED": Expected(given), "PROB learnt": Prob(), "LIFE": Life(given),
        "RANDOM": Random(),
    }  # fmt: skip
    exact = _results(streams, window, None, None)
    for share in _SHARES:
        kept = {name: _results(streams, window, int(share * 2 * window), policy) for name, policy in policies.items()}
        shown = ", ".join(f"{name} {100 * count / exact:.1f} %" for name, count in kept.items())
        report.remark(f"Zipf 1, window {window:,}, memory {100 * share:.0f} % of it: {shown} of {exact:,} results")


def _report_papers_grid(report: Report) -> None:
    """Report WINDOW 5.2: 5600 tuples per stream, window 400, Zipf 1 over 50 values, without the first 2w instants."""
    window, rows, runs = 400, 5600, range(5)
    for name, same in (("uncorrelated", False), ("correlated", True)):
        for share in (0.1, 0.25, 0.5, 1.0, 1.5):
            kept: dict[str, int] = {}
            for run in runs:
                keys = [Zipf(1.0, 50, seed=seed).seek(first).keys(rows)
                        for seed, first in ((run, 0), (run if same else 100 + run, 10**6))]  # fmt: skip
                streams = Streams(
                    [pa.record_batch([pa.array(keys[0]), pa.array(np.arange(rows))], schema=_LEFT)],
                    [pa.record_batch([pa.array(keys[1]), pa.array(np.arange(rows))], schema=_RIGHT)],
                )
                given, memory = streams.probabilities, int(share * window)
                for policy in (Prob(given), Expected(given), Life(given), Random(run)):
                    found = _later_results(streams, window, memory, policy)
                    kept[policy.name] = kept.get(policy.name, 0) + found
                kept["exact"] = kept.get("exact", 0) + _later_results(streams, window, None, Random())
            exact = kept.pop("exact")
            shown = ", ".join(f"{policy.upper()} {100 * count / exact:.2f} %" for policy, count in kept.items())
            report.remark(
                f"the paper's grid, {name} Zipf 1, w = {window}, M = {share:g} w: {shown} of {exact:,} results"
            )


def _later_results(streams: Streams, window: int, memory: int | None, policy: Policy) -> int:
    """Count the results after two windows, when the tuples that first filled the memory have expired."""
    join = WindowJoin(_LEFT, _RIGHT, on="key", window=window, memory=memory, policy=policy)
    found = [*join.push_left(streams.left[0]), *join.push_right(streams.right[0]), *join.finish()]
    times = (np.maximum(batch["left"].to_numpy(), batch["right"].to_numpy()) for batch in found)
    return sum(int(np.count_nonzero(time >= 2 * window)) for time in times)


def _results(streams: Streams, window: int, memory: int | None, policy: Policy | None) -> int:
    join = WindowJoin(_LEFT, _RIGHT, on="key", window=window, memory=memory, policy=policy or "random")
    for left, right in zip(streams.left, streams.right, strict=True):
        for results in (partial(join.push_left, left), partial(join.push_right, right)):
            for _ in results():
                pass
    for _ in join.finish():
        pass
    return join.stats.results
