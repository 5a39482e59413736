"""FolderUpdates: files that update a relation, in the order of their times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import PipelineError
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.updates.update_reader import UpdateReader
from semistream.relation import Relation


class FolderUpdates:
    """Files of a folder as updates of ``relation``. Each file appears there once and complete."""

    def __init__(self, spec: UpdatesSpec, relation: Path) -> None:
        assert spec.path is not None
        self._spec, self._folder, self._relation = spec, spec.path, relation

    def next(self, reader: UpdateReader, before: Mapping[str, Any], number: int) -> dict[str, Any] | None:  # noqa: ARG002
        """Return the new files since the update ``before``; None if there are none."""
        if not self._folder.is_dir():
            raise PipelineError(
                f"{self._folder}, the source of updates of {self._relation}, is not a folder. Create it, or name "
                "another."
            )
        seen = set(before.get("seen", []))
        there = [path for path in self._folder.iterdir() if path.is_file() and not path.name.startswith(("_", "."))]
        there.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
        new = [path.name for path in there if path.name not in seen]
        return {"files": new, "seen": sorted(seen | set(new))} if new else None

    def rows(
        self,
        reader: UpdateReader,
        relation: Relation,  # noqa: ARG002
        columns: Mapping[str, str],
        content: Mapping[str, Any],
    ) -> pa.Table:
        """Return the rows of an update's files."""
        return reader.read_files(self._spec, columns, [self._folder / name for name in content["files"]])

    def forget(self, content: Mapping[str, Any]) -> None:
        """Do nothing: the files are not ours."""
