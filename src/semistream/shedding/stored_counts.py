"""Counts kept beside the version of a relation that they are of. They can be made again: none are needed."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import CorruptRelation
from semistream.relation import Relation
from semistream.relation.durable import replace_file
from semistream.relation.manifest import match_counts_name, read_manifest
from semistream.shedding.counted_keys import CountedKeys

_log = logging.getLogger(__name__)
_FIELDS = b"semistream counts"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


def store_counts(relation: Relation, counted: CountedKeys, slots: int) -> None:
    """Keep counts beside the version that they are of, unless there are some that were made with as much memory.

    A folder that cannot be written to keeps none, nor do parts of a relation.
    """
    path = relation.path / match_counts_name(relation.manifest)
    if not _is_whole(relation) or _slots_of(path) >= slots:
        return
    fields = {
        "slots": slots,
        "keys": counted.codes.size,
        "bound": counted.bound,
        "unlisted": counted.unlisted,
        "slack": counted.slack,
        "checksum": _checksum(counted),
    }
    table = pa.table({"code": counted.codes, "rows": counted.counts})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata({_FIELDS: json.dumps(fields).encode()})) as writer:
        writer.write_table(table)
    try:
        replace_file(path, sink.getvalue().to_pybytes())
    except OSError as error:
        _log.info("match counts of %s are not kept: %s", relation.path, error)


def load_counts(relation: Relation, version: int, slots: int) -> CountedKeys | None:
    """The counts that were kept of a version, in at most ``slots`` keys; None if there are none.

    Those that were made with half of the memory or less are not taken, as they say less than they could, nor those that
    do not fit the memory to be cut down in it. Damaged ones are removed.
    """
    if not _is_whole(relation):
        return None
    try:
        manifest = relation.manifest if version == relation.version else read_manifest(relation.path, version)
    except CorruptRelation:
        return None  # vacuumed, or damaged: whoever opens that version is told
    path = relation.path / match_counts_name(manifest)
    try:
        with pa.OSFile(str(path)) as source:
            reader = pa.ipc.open_file(source)
            fields = _fields(reader)
            if fields["keys"] > 2 * slots or (fields["bound"] > 1 and slots >= 2 * fields["slots"]):
                return None
            table = reader.read_all()
        codes, counts = (np.array(table.column(name).to_numpy(), np.int64) for name in ("code", "rows"))
        counted = CountedKeys(codes, counts, fields["bound"], fields["unlisted"], fields["slack"])
        if fields["checksum"] != _checksum(counted):
            raise ValueError("they do not match their checksum")
    except FileNotFoundError:
        return None
    except _DAMAGE as error:
        _log.warning("match counts %s are damaged and counted again: %s", path, error)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return None
    return counted.fitting(slots)


def _slots_of(path: Path) -> int:
    """With how much memory the counts there were made; 0 if there are none."""
    try:
        with pa.OSFile(str(path)) as source:
            return int(_fields(pa.ipc.open_file(source))["slots"])
    except _DAMAGE:
        return 0


def _fields(reader: pa.ipc.RecordBatchFileReader) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((reader.schema.metadata or {})[_FIELDS])
    return fields


def _is_whole(relation: Relation) -> bool:
    """Whether it has all rows of its version, and is not a part of it."""
    return relation.num_rows == relation.manifest.num_rows


def _checksum(counted: CountedKeys) -> int:
    digest = xxhash.xxh64(f"{counted.bound} {counted.unlisted} {counted.slack}".encode())
    digest.update(np.ascontiguousarray(counted.codes).data)
    digest.update(np.ascontiguousarray(counted.counts).data)
    return int(digest.intdigest())
