"""Base class of the tables that a pipeline appends to: a commit publishes the files of a batch once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from semistream.errors import InvalidArgument, PipelineError
from semistream.pipelines.carried_types import carried_schema
from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables.writer import TableLayout


class Table(ABC):
    """Target table with a fixed ``schema``, in types that Spark and Delta support.

    ``owner`` names the pipeline and its checkpoint; a table commits each batch of an owner once. Files lie in the
    folder ``path``. A table without a folder of its own keeps rows in ``outbox``, a folder of the checkpoint.
    """

    def __init__(self, spec: TableSpec, schema: pa.Schema, owner: Owner, outbox: Path) -> None:
        self.spec = spec
        self.path = outbox if spec.path is None else spec.path
        self.schema = carried_schema(schema)
        self.partition_by = spec.partition_by
        self.owner = owner
        for name in spec.partition_by:
            if name not in schema.names:
                raise InvalidArgument(
                    f"{spec.path} cannot be partitioned by {name!r}: its rows have {', '.join(schema.names)}."
                )
            if pa.types.is_binary(self.schema.field(name).type) or pa.types.is_nested(self.schema.field(name).type):
                raise InvalidArgument(
                    f"{spec.path} cannot be partitioned by {name!r}: it is {schema.field(name).type}, which makes no "
                    "folder name. Partition by another column."
                )
        for name in {*schema.names, *spec.partition_by}:
            if schema.names.count(name) > 1 or spec.partition_by.count(name) > 1:
                raise InvalidArgument(
                    f"the rows of {self.path} have {name!r} twice. Rename the source's column, or name another; the "
                    "pipeline adds batch_id and stopped_at to rows that stop before the last step."
                )
        if set(spec.partition_by) == set(schema.names):
            raise InvalidArgument(f"{spec.path} cannot be partitioned by all of its columns; leave at least one out.")

    @property
    @abstractmethod
    def layout(self) -> TableLayout:
        """Location and format of the files that workers write."""

    @abstractmethod
    def open(self) -> None:
        """Create the table if it is missing; refuse one that cannot take the pipeline's rows."""

    @abstractmethod
    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Publish the files of a batch to readers; do nothing for files already published."""

    def shown(self, batch: int, files: Sequence[WrittenFile]) -> list[str]:  # noqa: ARG002
        """Return the paths of a batch's files after the commit, relative to the table's folder."""
        return [file.path for file in files]

    def restore(self, done: Sequence[tuple[int, Sequence[WrittenFile]]]) -> None:  # noqa: B027
        """Publish batches again, oldest first, that the ledger calls done and a power cut has taken from the table.

        A table whose `commit` is durable by itself has nothing to do.
        """

    @abstractmethod
    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove unpublished files, except those ``in_use``, and return their paths."""


class Owner:
    """Pipeline and checkpoint that write a table: the pipeline's ``name`` and the checkpoint's random ``token``."""

    def __init__(self, name: str, token: str) -> None:
        self.name = name
        self.token = token

    @property
    def prefix(self) -> str:
        """Beginning of the names of the owner's files."""
        return f"{self.name}-{self.token}-"


def require_same_columns(path: Path, found: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse a table whose columns differ from the pipeline's rows in name or type."""
    there, here = ({field.name: field.type for field in schema} for schema in (found, wanted))
    differences = [f"{name} ({type_}) is only in the table" for name, type_ in there.items() if name not in here]
    differences += [f"{name} ({type_}) is only in the pipeline" for name, type_ in here.items() if name not in there]
    differences += [
        f"{name} is {there[name]} in the table and {type_} in the pipeline"
        for name, type_ in here.items()
        if name in there and there[name] != type_
    ]
    if differences:
        raise PipelineError(
            f"the columns of the table {path} differ from the pipeline's rows: {'; '.join(differences)}. Give the "
            "pipeline another table, or change its output columns."
        )
