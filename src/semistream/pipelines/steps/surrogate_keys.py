"""Surrogate keys (MESH Fig. 1): assign consecutive numbers to new production keys, exactly once each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from semistream.pipelines.ledger.entries import WaitingFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.steps.key_relation import open_key_relation, stalled_keys, unknown_keys, version_with
from semistream.relation import Change, Relation, Transaction

NUMBER = "surrogate_key"
"""Column with the number of a key; also the name of the relation's counter, which holds the next number."""

SOURCE = "source"
"""Column that separates the key spaces of sources."""


class SurrogateKeys:
    """Relation of numbers by production key. The first number is 1.

    The keys of a transaction and the version before it determine its numbers: they are assigned in key order, under the
    writer lock, and published with the transaction's number. The same transaction can be tried any number of times, and
    several pipelines can share the relation.
    """

    def __init__(self, path: Path, key: pa.Schema) -> None:
        self.relation = open_key_relation(path, key, pa.field(NUMBER, pa.int64()))

    def assign(
        self, folder: Path, files: Sequence[WaitingFile], columns: Sequence[str], transaction: Transaction
    ) -> Relation:
        """Assign numbers to the new keys of stalled rows, and return a version with all of them.

        ``columns`` are the key columns of the rows, in the order of the relation's key.
        """
        stalled = stalled_keys(folder, files, columns).rename_columns(list(self.relation.key))
        reached("before keys")
        current = self.relation.change(lambda current: _numbered(current, stalled), transaction)
        reached("after keys")
        self.relation = version_with(current, transaction)
        return self.relation


def _numbered(current: Relation, stalled: pa.Table) -> Change:
    distinct = stalled.group_by(stalled.column_names).aggregate([])
    new = unknown_keys(current, distinct).sort_by([(name, "ascending") for name in stalled.column_names])
    first = current.manifest.counters.get(NUMBER, 1)
    numbers = pa.array(np.arange(first, first + new.num_rows))
    return Change(upserts=new.append_column(NUMBER, numbers), counters={NUMBER: first + new.num_rows})
