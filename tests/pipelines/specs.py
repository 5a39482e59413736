"""A small valid pipeline as nested mappings, and the same with one thing changed."""

from __future__ import annotations

import copy
from typing import Any

PIPELINE: dict[str, Any] = {
    "name": "orders",
    "source": {
        "format": "parquet",
        "path": "incoming",
        "schema": {"id": "bigint", "price": "decimal(10, 2)", "day": "date", "ok": "boolean", "weight": "double"},
    },
    "steps": [{"join": {"relation": "products", "on": "id"}}],
    "sink": {"path": "tables/sales"},
    "unmatched": {"path": "tables/unmatched"},
    "quarantine": {"path": "tables/quarantine"},
    "checkpoint": "checkpoint",
}


def changed(place: str, value: Any) -> dict[str, Any]:
    """The pipeline with another value at a place such as ``steps.0.join.on``."""
    spec = copy.deepcopy(PIPELINE)
    *parents, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    at: Any = spec
    for part in parents:
        at = at[part]
    at[last] = value
    return spec


def ruled(**rule: Any) -> dict[str, Any]:
    """The pipeline with one rule."""
    return changed("source.rules", [rule])
