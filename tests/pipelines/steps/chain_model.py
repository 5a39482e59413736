"""Chains of joins over three small relations, and the outcomes of each row by definition, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream import SemiStreamJoin
from semistream.pipelines.steps.chain import ROW, Link
from semistream.pipelines.task.batch_task import SINCE
from semistream.relation import Relation

PAIRS = [
    [(0, 1), (2, 3), (4, 0)],
    [(0, 0), (0, 1), (1, 2), (2, 3), (2, 3), (2, 4)],  # several rows of a key, two of them the same
    [(3, 3)],
]
SOURCE = pa.schema([("a", pa.int64()), ("b", pa.int64())])
STREAM = pa.schema([*SOURCE, (ROW, pa.int64()), (SINCE, pa.int64())])


@dataclass(frozen=True)
class Step:
    """A join of a column ``on`` with a relation; ``keeps`` lets its key go on too."""

    relation: int
    on: str
    how: str
    missed: str = "end"
    keeps: bool = False
    flags: bool = False


_OPENED: list[SemiStreamJoin] = []


def close_joins() -> None:
    """Close all joins of the chains built."""
    while _OPENED:
        _OPENED.pop().close()


def build_relations(folder: Path) -> list[Relation]:
    """The relations, a page for every two or three rows."""
    built = []
    for i, pairs in enumerate(PAIRS):
        table = pa.table({f"id{i}": [k for k, _ in pairs], f"v{i}": [v for _, v in pairs]})
        built.append(Relation.build(table, folder / f"r{i}", key=f"id{i}", page_bytes=512))
    return built


def build_links(steps: list[Step], relations: list[Relation], operator: type[SemiStreamJoin]) -> list[tuple[Any, Any]]:
    """The joins of a chain with their links; columns of the n-th step end in ``_n``."""
    links, schema = [], STREAM
    for n, step in enumerate(steps):
        relation = relations[step.relation]
        key, value = relation.schema.names
        columns = [value, key] if step.how == "inner" else [key]
        join = operator(
            relation, schema, on={step.on: key}, how="left", columns=columns, suffix="_again", memory="256KB"
        )
        link = Link(
            label=f"step {n}",
            how=step.how,  # type: ignore[arg-type]
            width=len(schema),
            marker=len(schema) + columns.index(key),
            keeps_marker=step.keeps,
            missed=step.missed,  # type: ignore[arg-type]
            keys=(step.on,),
            into=f"key_{n}" if step.keeps else None,
            flag=f"twice_{n}" if step.flags else None,
        )
        _OPENED.append(join)
        links.append((link, join))
        schema = link.passed_on(join.schema)
    return links


def follow(row: dict[str, Any], steps: list[Step], at: int = 0) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the outcomes of a row, with the number of the step and the row as it stops."""
    if at == len(steps):
        yield "joined", at, row
        return
    step = steps[at]
    found = [value for key, value in PAIRS[step.relation] if key == row[step.on]]
    if step.how == "inner":
        for value in found or ([None] if step.missed == "keep" else []):
            kept = {f"key_{at}": row[step.on] if found else None} if step.keeps else {}
            yield from follow({**row, f"v{step.relation}": value, **kept}, steps, at + 1)
    elif step.how == "semi" and found:
        kept = {f"key_{at}": row[step.on]} if step.keeps else {}
        yield from follow({**row, **kept}, steps, at + 1)
    elif step.how == "anti":
        if found:
            yield "unmatched", at, row
        else:
            yield from follow({**row, **({f"key_{at}": None} if step.keeps else {})}, steps, at + 1)
    elif step.how == "first":
        for _ in found:
            if step.flags:
                kept = {f"key_{at}": row[step.on]} if step.keeps else {}
                yield from follow({**row, **kept, f"twice_{at}": True}, steps, at + 1)
            else:
                yield "duplicate", at, row
    if not found and step.how != "anti" and step.missed != "keep":
        lost = step.missed == "end" or (step.missed == "stall" and row[step.on] is None)
        yield "unmatched" if lost else "stalled" if step.missed == "stall" else "waiting", at, row
