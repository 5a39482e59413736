"""Read all rows of a relation, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.keys.plain_types import empty_batch
from semistream.relation.format.arrow_files import sound_batches
from semistream.relation.read.disk import Disk
from semistream.relation.write.version_draft import check_whole

if TYPE_CHECKING:
    from semistream.relation.relation import Relation


def scan_rows(relation: Relation, names: list[str], schema: pa.Schema, disk: str | Disk) -> Iterator[pa.RecordBatch]:
    """Yield all rows in the order of their codes, then those with a null key."""
    for run in relation.read_pages(np.arange(len(relation.table)), disk=disk):
        batches = [run.batch(i, names) for i in range(run.pages.size)]
        yield pa.concat_batches([*batches, empty_batch(schema)])  # a copy, because the reader reuses the buffer
    for file in relation.manifest.null_files:
        for batch in sound_batches(check_whole(relation.path, file), relation.schema):
            yield pa.RecordBatch.from_arrays(batch.select(names).columns, schema=schema)
