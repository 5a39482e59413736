"""A folder of Parquet files: written aside, then given names that are fixed by batch and part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.tables.table import Table, require_same_columns
from semistream.pipelines.tables.writer import TableLayout
from semistream.storage.local_files import sync_folder

_STAGING = "_staging"  # readers pass over folders that begin so
_KNOWN = 1  # files whose columns are compared with the pipeline's


class ParquetSink(Table):
    """Appends to a folder of Parquet files.

    Each file of a batch gets its name by one rename, so a reader sees it whole; but it may see some files of a batch
    before the others. Tables that must show a batch all at once are Delta's.
    """

    @property
    def layout(self) -> TableLayout:
        """Files lie aside until they are committed."""
        return TableLayout(str(self.path), self.schema, self.partition_by, staging=_STAGING, owner=self._own)

    def open(self) -> None:
        """Make the folder if there is none, and refuse one whose files have other columns."""
        try:
            (self.path / _STAGING).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PipelineError(
                f"the table {self.path} cannot be made: {error.strerror}. Give a folder that can be written."
            ) from error
        shown = self._shown()
        for path in sorted(shown)[:_KNOWN]:
            require_same_columns(self.path, pq.read_schema(path).remove_metadata(), self.layout.file_schema)
        if other := [name for name in (path.name for path in shown) if self._is_foreign(name)]:
            raise PipelineError(
                f"the table {self.path} has rows of the pipeline {self.owner.name!r} from another checkpoint "
                f"({other[0]}). All rows would come twice: restore that checkpoint, give the pipeline another name, or "
                "another table."
            )

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Give the files of a batch their names, those that have none yet."""
        for file, shown in zip(files, self.shown(batch, files), strict=True):
            staged, final = self.path / file.path, self.path / shown
            if final.exists():
                continue
            if not staged.exists():
                raise PipelineError(
                    f"{staged}, a file of batch {batch}, is gone and has not become {final.name}. Restore it, or give "
                    "the pipeline a new table and a new checkpoint."
                )
            reached("before parquet rename")
            try:
                final.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(final)
                for folder in (final.parent, *final.parent.parents[: len(Path(shown).parts) - 1]):
                    sync_folder(folder)
            except OSError as error:
                raise PipelineError(
                    f"batch {batch} cannot be committed to the table {self.path}: {error}. Its files are written; "
                    "start the pipeline again when the table can be written."
                ) from error
            reached("after parquet rename")

    def shown(self, batch: int, files: Sequence[WrittenFile]) -> list[str]:
        """Files have names that follow from the batch and their place in it."""
        places = [Path(file.path).relative_to(_STAGING).parent for file in files]
        return [str(place / f"{self._own}{batch:012d}-{part:05d}.parquet") for part, place in enumerate(places)]

    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove files of this checkpoint that were written aside and never committed."""
        keep = {self.path / name for name in in_use}
        removed = [path for path in (self.path / _STAGING).rglob(f"{self._own}*.parquet") if path not in keep]
        for path in removed:
            path.unlink()
        return removed

    @property
    def _own(self) -> str:
        return f"{self.owner.name}-{self.owner.token}-"

    def _is_foreign(self, name: str) -> bool:
        """Whether a file is one that the pipeline has committed with another checkpoint."""
        committed = rf"{re.escape(self.owner.name)}-[0-9a-f]{{8}}-\d{{12}}-\d{{5}}\.parquet"
        return re.fullmatch(committed, name) is not None and not name.startswith(self._own)

    def _shown(self) -> list[Path]:
        return [path for path in self.path.rglob("*.parquet") if _STAGING not in path.relative_to(self.path).parts]
