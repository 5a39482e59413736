"""Surrogate keys (MESH Fig. 1): production keys that are not known yet get consecutive numbers, each once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from semistream.pipelines.ledger.entries import WaitingFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.steps.key_relation import change_shared, open_key_relation, stalled_keys, unknown_keys
from semistream.relation import Change, Relation, Transaction

NUMBER = "surrogate_key"
"""The column that has the number of a key, and the counter of the relation that has the next one."""

SOURCE = "source"
"""The column that tells sources apart whose keys are not the same."""


class SurrogateKeys:
    """A relation of numbers by production key. The first number is 1.

    The numbers of a transaction follow from its keys and from the version before: they are given in the order of the
    keys, while no other writer can, and are published with the transaction's number. So it makes no difference how
    often the same transaction is tried, or which pipelines share the relation.
    """

    def __init__(self, path: Path, key: pa.Schema) -> None:
        self.relation = open_key_relation(path, key, pa.field(NUMBER, pa.int64()))

    def assign(
        self, folder: Path, files: Sequence[WaitingFile], columns: Sequence[str], transaction: Transaction
    ) -> Relation:
        """Give numbers to the keys of stalled rows that have none; gives the version that has them all.

        ``columns`` are those of the rows that are looked up by the relation's key.
        """
        stalled = stalled_keys(folder, files, columns).rename_columns(list(self.relation.key))
        reached("before keys")
        current = change_shared(self.relation, lambda current: _numbered(current, stalled), transaction)
        reached("after keys")
        self.relation = Relation.open(current.path, current.made_by(transaction))
        return self.relation


def _numbered(current: Relation, stalled: pa.Table) -> Change:
    distinct = stalled.group_by(stalled.column_names).aggregate([])
    new = unknown_keys(current, distinct).sort_by([(name, "ascending") for name in stalled.column_names])
    first = current.manifest.counters.get(NUMBER, 1)
    numbers = pa.array(np.arange(first, first + new.num_rows))
    return Change(upserts=new.append_column(NUMBER, numbers), counters={NUMBER: first + new.num_rows})
