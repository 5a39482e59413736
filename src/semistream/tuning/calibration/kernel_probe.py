"""Measures what the kernels take for a tuple, a row or a value, through the pieces that operators are made of.

KernelWork: calls of the pieces that operators are made of, on made-up data of a realistic shape, to be timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.machine import KernelCosts
from semistream.errors import InvalidArgument
from semistream.joins.cache.index import ProbeRoom
from semistream.joins.cache.tuple_cache import CacheRows, TupleCache
from semistream.joins.condition.condition import Condition
from semistream.joins.condition.run_codes import ClusteredCodes
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.intake import Admitted
from semistream.kernels.array_types import Int32s, Int64s
from semistream.kernels.sort import sort_codes
from semistream.keys import CodeRanges, KeyCodec
from semistream.relation import PageRun
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.format.row_sizes import row_sizes
from semistream.relation.read.disk import allocate_buffer
from semistream.tuning.calibration.progress import Progress, unwatched

_INT = pa.int64()
_PAYLOAD = [f"column{i}" for i in range(14)]  # with the key, rows of 120 bytes: the papers'
_RELATION = pa.schema([(name, _INT) for name in ("id", *_PAYLOAD)])
_STREAM = pa.schema([(name, _INT) for name in ("product", "amount", "at")])
_PAGE_ROWS = 512  # which take about 64 KiB
_PACKETS = 8
_PAIRS = 1 << 15  # that are found at a time
_CACHED = 8  # one row in so many


class Prepared(NamedTuple):
    """A call that does so many units of work: tuples, rows, pairs or values."""

    call: Callable[[], object]
    units: int


class _Split(NamedTuple):
    """What an emitter has in a join with enough memory."""

    batch_bytes: int = 8 << 20
    check_bytes: int = 1 << 20


class KernelWork:
    """R in pages, the stream in packets, a window that is full of them, and a cache of some of R's rows.

    Every other key has a row. Each method prepares one call; what it does is part of no other's work.
    """

    def __init__(self, rows: int, tuples: int, random: np.random.Generator) -> None:
        self._budget = MemoryBudget("1GB")
        codes = np.cumsum(random.integers(1, 4, rows))
        relation = _batch(_RELATION, codes, *(random.integers(0, 1 << 40, rows) for _ in _PAYLOAD))
        self._pages = _Pages(relation)
        keys = random.integers(0, codes[-1], tuples)
        stream = _batch(_STREAM, keys, random.integers(0, 100, tuples), np.arange(tuples))
        step = -(-tuples // _PACKETS)
        self._batches = [stream.slice(begin, step) for begin in range(0, tuples, step)]
        self._codes = [keys[begin : begin + step] for begin in range(0, tuples, step)]
        self._tuples = tuples
        self._window = self._filled(self._codes)
        self._pairs = self._found()
        cached = np.flatnonzero(random.random(rows) < 1 / _CACHED)
        self._cache = _cache_of(relation.take(pa.array(cached)))
        self._looked_up = np.where(random.random(tuples) < 0.5, random.choice(codes[cached], tuples), -1 - keys)

    def encode(self) -> Prepared:
        """Make codes of a key of two columns."""
        condition = _equality(_STREAM.names[:2])
        return Prepared(lambda: [condition.ranges(batch) for batch in self._batches], self._tuples)

    def insert(self) -> Prepared:
        """Fill a window with packets that are in order."""
        window = StreamWindow(self._tuples, self._budget)
        packets = self._packets([np.sort(codes) for codes in self._codes])

        def fill() -> None:
            for entered, packet in enumerate(packets):
                window.admit(packet, entered)

        return Prepared(fill, self._tuples)

    def sort(self) -> Prepared:
        """Put the codes of packets in order."""
        return Prepared(lambda: [sort_codes(codes) for codes in self._codes], self._tuples)

    def probe(self) -> Prepared:
        """Look all rows of R up in the window."""
        run = self._pages.run()
        return Prepared(lambda: [tuples.size for tuples, _, _ in self._probed(run)], int(run.rows.sum()))

    def look_up(self) -> Prepared:
        """Look tuples up in the cache."""
        room = ProbeRoom(self._tuples, _PAIRS)
        return Prepared(
            lambda: [tuples.size for tuples, _, _ in self._cache.probe(self._looked_up, None, room)], self._tuples
        )

    def expire(self) -> Prepared:
        """Empty a full window."""
        window = self._filled(self._codes)

        def empty() -> None:
            while window.packets:
                window.oldest_matched()
                window.expire()

        return Prepared(empty, self._tuples)

    def output(self) -> Prepared:
        """Give out pairs, without a column of R."""
        spec = JoinSpec(_STREAM, _equality(_STREAM.names[:1]), "inner", (), _STREAM)
        emitter = Emitter(spec, _Split(), self._budget)
        run, (tuples, page, row) = self._pages.run(), self._pairs

        def emit() -> None:
            self._window.mark(tuples)
            for _ in emitter.stage(self._window, tuples, run, page, row):
                pass
            for _ in emitter.emit(self._window):
                pass

        return Prepared(emit, tuples.size)

    def gather(self) -> Prepared:
        """Copy R's values of pairs."""
        run, (_, page, row) = self._pages.run(), self._pairs
        columns = [run.layout.column(name) for name in _PAYLOAD]
        return Prepared(lambda: run.gather(columns, page, row), page.size * len(columns))

    def _packets(self, codes: Sequence[Int64s]) -> list[Admitted]:
        return [
            Admitted(batch, row_sizes(batch), CodeRanges(each, None, None))
            for batch, each in zip(self._batches, codes, strict=True)
        ]

    def _filled(self, codes: Sequence[Int64s]) -> StreamWindow:
        window = StreamWindow(self._tuples, self._budget)
        for entered, packet in enumerate(self._packets(codes)):
            window.admit(packet, entered)
        return window

    def _probed(self, run: PageRun) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        room = np.empty(_PAIRS, np.int64), np.empty(_PAIRS, np.int32), np.empty(_PAIRS, np.int32)
        return self._window.probe(ClusteredCodes(run), *room)

    def _found(self) -> tuple[Int64s, Int32s, Int32s]:
        """All pairs of a tuple and a row."""
        parts = [tuple(part.copy() for part in pairs) for pairs in self._probed(self._pages.run())]
        tuples, page, row = (np.concatenate(part) for part in zip(*parts, strict=True))
        return tuples, page, row


class _Pages:
    """Rows of R as they stand in memory when they were read."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._layout = PageLayout.of(rows.schema, ("id",), KeyCodec.of(("id",), [_INT]))
        slices = [rows.slice(begin, _PAGE_ROWS) for begin in range(0, rows.num_rows, _PAGE_ROWS)]
        messages = [page.serialize() for page in slices]
        self._rows = np.array([page.num_rows for page in slices], np.int32)
        self._nbytes = np.array([[message.size for message in messages]], np.int64)
        self._starts = np.cumsum(self._nbytes, axis=1) - self._nbytes
        self._buffer = allocate_buffer(int(self._nbytes.sum()))
        for start, message in zip(self._starts[0].tolist(), messages, strict=True):
            self._buffer[start : start + message.size] = np.frombuffer(message, np.uint8)

    def run(self) -> PageRun:
        """All of them, just read: nothing is known yet of where their columns are."""
        pages = np.arange(self._rows.size)
        return PageRun(self._layout, self._buffer, pages, self._starts, self._rows, self._nbytes)


def _cache_of(rows: pa.RecordBatch) -> TupleCache:
    """A cache that holds these rows of R."""
    columns = PageLayout.with_codes(rows.schema).columns[1:]
    cache = TupleCache(columns, 2 * rows.nbytes + (1 << 20))
    stored = pa.RecordBatch.from_arrays([rows.column("id"), *rows.columns], schema=cache.layout.schema)
    cache.admit(CacheRows(stored, np.ones(rows.num_rows, np.int32)))
    return cache


def _equality(columns: list[str]) -> Condition:
    """That these columns of the stream are equal to a key of R."""
    names = [f"key{i}" for i in range(len(columns))]
    return Condition("equality", "", KeyCodec.of(names, [_INT] * len(names)), tuple(columns), (), None)


def _batch(schema: pa.Schema, *columns: Int64s) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)


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
