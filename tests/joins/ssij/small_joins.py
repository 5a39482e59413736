"""Small joins by SSIJ for its tests."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from semistream import Relation, SemiStreamingIndexJoin
from semistream.relation import SimulatedDisk

SCHEMA = pa.schema([("s", pa.int64())])
NO_SEEKS = partial(SimulatedDisk, seek_s=0.0, transfer_s=1.0)  # reads no page along that nobody wants


def keys(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"s": pa.array(values, pa.int64())})


def out(results) -> list[int]:
    return sorted(value for batch in results for value in batch.column("s").to_pylist())


def ssij(relation: Relation, **options: object) -> SemiStreamingIndexJoin:
    return SemiStreamingIndexJoin(relation, SCHEMA, **({"on": {"s": "k"}, "memory": "1MB", "columns": []} | options))


def cached_pages(join: SemiStreamingIndexJoin) -> set[int]:
    return set(np.flatnonzero(join._cache.frame_of >= 0).tolist())
