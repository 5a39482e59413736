"""Measures what the kernels take for a tuple, a row or a value, through the pieces that operators are made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from semistream.errors import InvalidArgument
from semistream.joins.kernel_work import KernelWork, Prepared
from semistream.tuning.machine import KernelCosts
from semistream.tuning.progress import Progress, unwatched

_LEAST = 64  # rows and tuples


def measure_kernels(
    progress: Progress = unwatched,
    *,
    rows: int = 400_000,
    tuples: int = 100_000,
    repeats: int = 25,
    seed: int = 0,
    clock: Callable[[], float] = time.thread_time,
) -> KernelCosts:
    """Medians of ``repeats`` calls on ``rows`` of R in pages and ``tuples`` of the stream, half of which find a row.

    Each is called once before, as its kernels may have to be compiled or loaded. What counts is the processor's time,
    so that others who use the machine meanwhile do not. The costs add up: none is part of another.

    ==============  ==============================================================================================
    cost            what is called, and for what
    ==============  ==============================================================================================
    ``encode_s``    `Condition.ranges` with a key of two columns, for a tuple: a hash. (A key that is one integer is
                    its own code, and costs next to nothing.)
    ``insert_s``    `StreamWindow.admit`, for a tuple: packets that are in order already, so that nothing is sorted,
                    but levels are merged
    ``sort_s``      `sort_codes`, for a tuple
    ``probe_s``     `StreamWindow.probe` with pages of R, for a row; there is a tuple for every four rows, and half of
                    the tuples make a pair
    ``look_up_s``   `TupleCache.probe`, for a tuple; half of them are found
    ``expire_s``    `StreamWindow.expire`, and `StreamWindow.oldest_matched` before, for a tuple
    ``output_s``    `StreamWindow.mark`, `Emitter.stage` and `Emitter.emit`, for a pair of which no column of R comes
                    out: three values of the stream are copied
    ``gather_s``    `PageRun.gather` of 14 columns, for a value
    ==============  ==============================================================================================
    """
    if min(rows, tuples) < _LEAST or repeats < 1:
        raise InvalidArgument(
            f"rows is {rows}, tuples {tuples} and repeats {repeats}; give at least {_LEAST}, {_LEAST} and 1."
        )
    work = KernelWork(rows, tuples, np.random.default_rng(seed))
    calls: dict[str, Callable[[], Prepared]] = {
        "encode_s": work.encode,
        "insert_s": work.insert,
        "sort_s": work.sort,
        "probe_s": work.probe,
        "look_up_s": work.look_up,
        "expire_s": work.expire,
        "output_s": work.output,
        "gather_s": work.gather,
    }
    costs: dict[str, float] = {}
    for done, (name, prepare) in enumerate(calls.items()):
        progress(done / len(calls))
        prepare().call()
        costs[name] = median(_unit_s(prepare(), clock) for _ in range(repeats))
    progress(1.0)
    return KernelCosts(**costs)


def _unit_s(prepared: Prepared, clock: Callable[[], float]) -> float:
    """Seconds of a call for each of its units."""
    began_s = clock()
    prepared.call()
    return (clock() - began_s) / prepared.units
