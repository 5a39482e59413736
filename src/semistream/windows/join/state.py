"""State of a window join as Arrow tables, and back. The round trip is exact, including statistics and random draws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.join.capacity import Capacity
from semistream.windows.join.instants import InstantJoin
from semistream.windows.join.slots import dump_tuples, make_memory, take_over
from semistream.windows.kernels.held_rows import LEARNT, POLICY, QUEUE_MODEL
from semistream.windows.kernels.priorities import DUMPED_COLUMNS, ORIGIN_COLUMN, SIDE_COLUMN, load_tuples
from semistream.windows.streams.arrivals import Arrivals, ReadyRows, no_rows
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import WindowLength

Tables = Mapping[str, pa.Table]
Late = tuple[list[pa.RecordBatch], list[pa.RecordBatch]]

FORMAT = 1


def pack_state(engine: InstantJoin, arrivals: Sequence[Arrivals], late: Late, late_rows: Sequence[int]) -> Tables:
    """Return tables by name: for each side the rows in memory, waiting, queued and late; tuple records; statistics."""
    memory = engine.memory
    tuples, weights = dump_tuples(memory)
    tables: dict[str, pa.Table] = {}
    for number, side in enumerate(SIDES):
        own = tuples[tuples[:, SIDE_COLUMN] == number]
        schema, store = arrivals[number].schema, engine.results.columns[number]
        columns = store.gather(np.ascontiguousarray(own[:, ORIGIN_COLUMN]), no_rows(schema).batch, schema.names)
        tables[f"{side} memory"] = pa.Table.from_arrays(columns, schema=schema)
        held = arrivals[number].held()
        tables[f"{side} waiting"] = pa.Table.from_batches([held.batch], schema)
        tables[f"{side} waiting times"] = pa.table({"time": held.times})
        tables[f"{side} late"] = pa.Table.from_batches(late[number], schema)
        tables[f"{side} queue"] = pa.Table.from_batches([engine.queue[number].batch], schema)
        tables[f"{side} queue times"] = pa.table({"time": engine.queue[number].times})
    tables["tuples"] = pa.table({str(i): np.ascontiguousarray(tuples[:, i]) for i in range(DUMPED_COLUMNS)})
    tables["weights"] = pa.table({"weight": weights})
    tables["sketch"] = pa.table({"count": memory.counters.ravel()})
    tables["state"] = pa.table({"word": memory.state})
    tables["sums"] = pa.table({"sum": memory.sums})
    numbers = {
        "format": FORMAT,
        "classes": memory.values.size,
        "capacity": asdict(engine.capacity),
        "windows": [asdict(window) for window in engine.windows],
        "arrivals": [[side.greatest, side.told, side.rows, side.next_number] for side in arrivals],
        "late": list(late_rows),
        "results": engine.results.count,
        "weight": engine.results.total_weight.hex(),
        "first": engine.first_instant,
    }
    tables["numbers"] = pa.table({"json": [json.dumps(numbers)]})
    return tables


def unpack_state(
    tables: Tables, engine: InstantJoin, arrivals: Sequence[Arrivals], late: Late, late_rows: list[int]
) -> None:
    """Load a state into a new operator."""
    numbers = _numbers(tables)
    old = engine.memory
    tuples = np.column_stack([tables["tuples"].column(str(i)).to_numpy() for i in range(DUMPED_COLUMNS)])
    tuples = np.ascontiguousarray(tuples.reshape(-1, DUMPED_COLUMNS))
    sketch, sums = tables["sketch"].column(0).to_numpy(), tables["sums"].column(0).to_numpy()
    state = tables["state"].column(0).to_numpy()
    for word, what in ((POLICY, "policy"), (LEARNT, "source of probabilities"), (QUEUE_MODEL, "queue")):
        if state[word] != old.state[word]:
            raise InvalidArgument(
                f"the state is from an operator with another {what}. Make an operator with the same one."
            )
    for side, own in zip(SIDES, arrivals, strict=True):
        if tables[f"{side} memory"].schema.names != own.schema.names:
            raise InvalidArgument(
                f"the state has the columns {tables[f'{side} memory'].schema.names} in its {side} stream, this "
                f"operator {own.schema.names}. Make one with the same columns."
            )
    for found, wanted, what in (
        (sketch.size, old.counters.size, "counters of its sketch"),
        (numbers["classes"], old.values.size, "classes of priority"),
        (tables["weights"].num_rows, tuples.shape[0] if old.weights.size else 0, "weights"),
        (state.size, old.state.size, "numbers"),
        (sums.size, old.sums.size, "sums"),
    ):
        if found != wanted:
            raise InvalidArgument(
                f"the state has {found} {what}, this operator {wanted}: their parameters differ. Make an operator with "
                "the parameters of the one that wrote the state."
            )
    memory = make_memory(
        max(old.records.shape[0], tuples.shape[0] + 2),
        old.values,
        sketch_width=old.counters.shape[2],
        weighted=old.weights.size > 0,
        pooled=old.pool.size > 0,
    )
    old.state[:] = state
    old.counters[:], old.sums[:] = sketch.reshape(old.counters.shape), sums
    take_over(memory, old)
    engine.capacity = Capacity(**numbers["capacity"])
    engine.windows = (WindowLength(**numbers["windows"][0]), WindowLength(**numbers["windows"][1]))
    weights = tables["weights"].column(0).to_numpy().astype(np.float64)
    load_tuples(memory, tuples, engine.cells(tuples), weights)
    engine.memory = memory
    engine.keep_departed()
    engine.results.count, engine.results.total_weight = numbers["results"], float.fromhex(numbers["weight"])
    engine.first_instant = numbers["first"]
    for number, side in enumerate(SIDES):
        _restore_rows(engine, number, tuples, tables[f"{side} memory"])
        arrivals[number].hold(_rows(tables, f"{side} waiting"))
        own = arrivals[number]
        own.greatest, own.told, own.rows, own.next_number = numbers["arrivals"][number]
        late[number][:] = [batch for batch in tables[f"{side} late"].to_batches() if batch.num_rows]
        late_rows[number] = numbers["late"][number]
    engine.note_windows()
    engine.queue = (_rows(tables, "left queue"), _rows(tables, "right queue"))


def _restore_rows(engine: InstantJoin, side: int, tuples: Int64s, rows: pa.Table) -> None:
    """Store the columns of a side's tuples, which were loaded into consecutive slots."""
    slots = np.flatnonzero(tuples[:, SIDE_COLUMN] == side).astype(np.int32)
    memory = engine.memory
    engine.results.columns[side].add(_batch(rows), slots, memory.records, memory.links, slots.size)


def _numbers(tables: Tables) -> dict[str, Any]:
    wanted = {"tuples", "weights", "sketch", "state", "sums", "numbers"}
    wanted |= {
        f"{side} {part}"
        for side in SIDES
        for part in ("memory", "waiting", "waiting times", "queue", "queue times", "late")
    }
    if missing := wanted - set(tables):
        raise InvalidArgument(f"the state lacks the tables {sorted(missing)}; give all tables that state() returned.")
    numbers = json.loads(tables["numbers"].column(0)[0].as_py())
    if numbers["format"] != FORMAT:
        raise InvalidArgument(f"the state has format {numbers['format']}; this version reads {FORMAT}.")
    return cast("dict[str, Any]", numbers)


def _rows(tables: Tables, name: str) -> ReadyRows:
    return ReadyRows(_batch(tables[name]), tables[f"{name} times"].column(0).to_numpy().astype(np.int64))


def _batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else no_rows(table.schema).batch
