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
    def products(self) -> Path:
        """The products as Spark's own join and DuckDB read them."""
        return self.root / "products.parquet"

    @property
    def relation(self) -> Path:
        """The products as a relation."""
        return self.root / "products"

    @property
    def orders(self) -> Path:
        """The order files, one per micro-batch."""
        return self.root / "orders"

    @property
    def metrics(self) -> Path:
        """What the Python workers counted."""
        return self.root / "metrics"

    @property
    def log(self) -> Path:
        """All that Spark had to say."""
        return self.root / "spark.log"

    @property
    def plot(self) -> Path:
        """The picture."""
        return self.root / "rates.png"

    def query(self, name: str) -> Path:
        """A query's own folder: its results and its checkpoint."""
        return self.root / f"query-{name}"
