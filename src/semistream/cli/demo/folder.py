"""Where the demo puts things: one folder that it makes, knows again by a mark, and never takes from anyone else."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import InvalidArgument

_MARK = ".semistream-demo"


@dataclass(frozen=True)
class DemoFolder:
    """The demo's files."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> DemoFolder:
        """An empty folder; what an earlier demo left in it is removed."""
        if root.exists() and not root.is_dir():
            raise InvalidArgument(f"out is {str(root)!r}, a file; name a folder.")
        mark = root / _MARK
        if root.exists() and not mark.exists() and any(root.iterdir()):
            raise InvalidArgument(f"out is {str(root)!r}, which holds other things than a demo; name another folder.")
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
        """The pipeline's file; its paths are relative to this folder."""
        return self.root / "orders.yaml"

    @property
    def data(self) -> Path:
        """What the pipeline reads: relations by name, and the same as Parquet files for Spark's own join and DuckDB."""
        return self.root / "data"

    @property
    def orders(self) -> Path:
        """The order files, one per micro-batch."""
        return self.data / "orders"

    @property
    def updates(self) -> Path:
        """Where updates of the products come to."""
        return self.data / "product_updates"

    @property
    def log(self) -> Path:
        """All that Spark had to say."""
        return self.root / "spark.log"

    @property
    def plot(self) -> Path:
        """The picture."""
        return self.root / "rates.png"

    @property
    def by_spark(self) -> Path:
        """The folder of Spark's own query: its results and its checkpoint."""
        return self.root / "by-spark"

    def table(self, name: str) -> Path:
        """A table as a Parquet file."""
        return self.data / f"{name}.parquet"

    def relation(self, name: str) -> Path:
        """The same as a relation."""
        return self.data / name
