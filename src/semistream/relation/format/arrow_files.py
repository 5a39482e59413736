"""Arrow files of a relation besides its pages: rows with a null key, and codes that an update touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from semistream.errors import CorruptRelation


def sound_batches(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, mapped to memory; raise `CorruptRelation` unless they have these columns.

    A checksum does not tell who wrote the file. So the content is validated as well: no offset leads out of it.
    """
    try:
        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            if not file.schema.equals(schema):
                raise ValueError(f"it has the columns {file.schema.names[:5]}, not {schema.names[:5]}, or other types")
            for i in range(file.num_record_batches):
                batch = file.get_batch(i)
                batch.validate(full=True)
                yield batch
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        told = str(error).replace("\n", " ")[:300]
        raise CorruptRelation(f"{path} cannot be read ({told}). Restore it from a copy.") from error
