"""Counts kept beside the version of a relation that they are of. They can be made again: none are needed."""

from __future__ import annotations

import json
import logging

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


def store_counts(relation: Relation, counted: CountedKeys, slots: int) -> None:
    """Keep counts beside the version that they are of; a folder that cannot be written to keeps none."""
    fields = {
        "slots": slots,
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
        replace_file(relation.path / match_counts_name(relation.manifest), sink.getvalue().to_pybytes())
    except OSError as error:
        _log.info("match counts of %s are not kept: %s", relation.path, error)


def load_counts(relation: Relation, version: int, slots: int) -> CountedKeys | None:
    """The counts that were kept of a version, in at most ``slots`` keys; None if there are none, or they are damaged.

    Those that were made with half of the memory or less are not taken: they say less than they could.
    """
    try:
        manifest = relation.manifest if version == relation.version else read_manifest(relation.path, version)
        path = relation.path / match_counts_name(manifest)
        with pa.OSFile(str(path)) as source:
            reader = pa.ipc.open_file(source)
            fields = json.loads(reader.schema.metadata[_FIELDS])
            table = reader.read_all()
        codes, counts = (np.array(table.column(name).to_numpy(), np.int64) for name in ("code", "rows"))
        counted = CountedKeys(codes, counts, fields["bound"], fields["unlisted"], fields["slack"])
        whole = fields["checksum"] == _checksum(counted)
    except FileNotFoundError:
        return None
    except CorruptRelation:
        return None  # vacuumed, or damaged: whoever opens that version is told
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        _log.warning("match counts of %s, version %d, are damaged (%s): counted again", relation.path, version, error)
        return None
    if not whole:
        _log.warning(
            "match counts of %s, version %d, do not match their checksum: counted again", relation.path, version
        )
        return None
    if counted.bound > 1 and slots >= 2 * fields["slots"]:
        return None
    return counted.fitting(slots)


def _checksum(counted: CountedKeys) -> int:
    digest = xxhash.xxh64(f"{counted.bound} {counted.unlisted} {counted.slack}".encode())
    digest.update(np.ascontiguousarray(counted.codes).data)
    digest.update(np.ascontiguousarray(counted.counts).data)
    return int(digest.intdigest())
