"""DemoFolder: the files of the demo, all in one folder that a marker file identifies, so that it deletes no others."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import InvalidArgument
from semistream.storage.local_paths import local_path

_MARK = ".semistream-demo"


@dataclass(frozen=True)
class DemoFolder:
    """Folder that holds every file of the demo."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> DemoFolder:
        """Create the folder, or empty it if it holds an earlier demo."""
        root = local_path(root)
        if root.exists() and not root.is_dir():
            raise InvalidArgument(f"--out is {str(root)!r}, a file; name a folder.")
        mark = root / _MARK
        if root.exists() and not mark.exists() and any(root.iterdir()):
            raise InvalidArgument(f"--out is {str(root)!r}, which holds other files than a demo's; name another one.")
        root.mkdir(parents=True, exist_ok=True)
        mark.touch()
        for path in root.iterdir():
            if path == mark:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return cls(root)

    @property
    def pipeline(self) -> Path:
        """Pipeline file; its paths are relative to this folder."""
        return self.root / "orders.yaml"

    @property
    def checkpoint(self) -> Path:
        """Checkpoint of the pipeline."""
        return self.root / "checkpoint"

    @property
    def data(self) -> Path:
        """Input data: relations for the pipeline, and the same tables as Parquet for Spark's own joins and DuckDB."""
        return self.root / "data"

    @property
    def made(self) -> Path:
        """Order files, made ahead, one per micro-batch."""
        return self.data / "made"

    @property
    def orders(self) -> Path:
        """Order files that have arrived at the pipeline."""
        return self.data / "orders"

    @property
    def updates(self) -> Path:
        """Folder for updates of the products."""
        return self.data / "product_updates"

    @property
    def log(self) -> Path:
        """Log of everything Spark prints."""
        return self.root / "spark.log"

    @property
    def plot(self) -> Path:
        """The picture."""
        return self.root / "demo.png"

    @property
    def by_spark(self) -> Path:
        """Orders that have arrived at Spark's own query, its results and its checkpoint."""
        return self.root / "by-spark"

    def table(self, name: str) -> Path:
        """Path of a table as a Parquet file."""
        return self.data / f"{name}.parquet"

    def relation(self, name: str) -> Path:
        """Path of the same table as a relation."""
        return self.data / name
