"""Duplicate detection: the first row ever with a business key is new, all later ones are duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.pipelines.ledger.entries import WaitingFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.steps.key_relation import open_key_relation, stalled_keys, unknown_keys, version_with
from semistream.relation import Change, Relation, Transaction
from semistream.storage.local_files import whole_file

ACCEPTED_IN = "batch_id"
"""Column with the batch in which a key first appeared."""
_POSITION = "__position"


class SeenKeys:
    """Relation of all keys ever accepted. It lives on disk: memory use does not grow with the number of keys.

    The stalled rows, in the order of their files, and the version before the transaction determine the first row of
    each key. No other writer comes in between, so two pipelines that share the relation never accept the same key.
    """

    def __init__(self, path: Path, key: pa.Schema) -> None:
        self.relation = open_key_relation(path, key, pa.field(ACCEPTED_IN, pa.int64()))
        self._columns = list(self.relation.key)

    def accept(
        self, folder: Path, files: Sequence[WaitingFile], columns: Sequence[str], transaction: Transaction, batch: int
    ) -> tuple[Relation, list[str]]:
        """Add the new keys among the stalled rows.

        Return a version with these keys, and for each file the name of a file beside it with a flag for each row: True
        for the first of its key. The flags are written before the keys: who tries the transaction again finds them.
        """
        stalled = stalled_keys(folder, files, columns).rename_columns(self._columns)
        positions = stalled.append_column(_POSITION, pa.array(np.arange(stalled.num_rows)))
        distinct = positions.group_by(self._columns).aggregate([(_POSITION, "min")])

        def accepted(current: Relation) -> Change:
            new = unknown_keys(current, distinct.select(self._columns))
            first = np.zeros(stalled.num_rows, np.bool_)
            at = distinct.join(new, keys=self._columns, join_type="left semi").column(f"{_POSITION}_min")
            first[at.to_numpy()] = True
            _write_flags(folder, files, first)
            return Change(upserts=new.append_column(ACCEPTED_IN, pa.repeat(pa.scalar(batch, pa.int64()), new.num_rows)))

        reached("before keys")
        current = self.relation.change(accepted, transaction)
        reached("after keys")
        self.relation = version_with(current, transaction)
        return self.relation, [_flags(file) for file in files]


def _flags(file: WaitingFile) -> str:
    return f"{file.path}.first"


def _write_flags(folder: Path, files: Sequence[WaitingFile], first: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    begin = 0
    for file in files:
        with whole_file(folder / _flags(file)) as sink:
            pq.write_table(pa.table({"first": first[begin : begin + file.rows]}), sink)
        begin += file.rows
