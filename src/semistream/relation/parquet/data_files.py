"""The files of a Parquet data set, and the partition values known without opening them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import xxhash

from semistream.errors import RelationError

_SUFFIXES = (".parquet", ".pq")
DELTA_LOG = "_delta_log"
_HARMLESS_FEATURES = {"timestampNtz"}  # Delta reader features that do not change the rows in the files


@dataclass(frozen=True)
class ParquetFiles:
    """Files in the order of their names, each with its partition values, taken from its path or its Delta log entry.

    ``partitions`` maps the partition columns to their types. ``schema`` has all columns if the data set declares them,
    as a Delta table does; None if the first file determines them. ``version`` changes when files are added, removed or
    rewritten.
    """

    paths: tuple[Path, ...]
    values: tuple[Mapping[str, object], ...]
    partitions: Mapping[str, pa.DataType]
    schema: pa.Schema | None
    version: int

    @classmethod
    def at(cls, path: Path) -> ParquetFiles:
        """Find the files of a data set: a Parquet file, a folder of Parquet files, or a Delta table."""
        if not path.exists():
            raise RelationError(
                f"{path} does not exist; give the path of a Parquet file, a folder of them, or a Delta table."
            )
        if (path / DELTA_LOG).is_dir():
            return _of_delta_table(path)
        return _of_folder(path) if path.is_dir() else cls((path,), ({},), {}, None, _stamp([path]))


def holds_parquet(path: Path) -> bool:
    """True if, judging by names, ``path`` is a Parquet file, a folder of only such files, or a Delta table."""
    if not path.is_dir():
        return path.suffix.lower() in _SUFFIXES
    files = _shown_files(path)
    return (path / DELTA_LOG).is_dir() or (bool(files) and all(p.suffix.lower() in _SUFFIXES for p in files))


def file_stamp(path: Path) -> tuple[int, int]:
    """Return the size and modification time of a file, which change when it is rewritten."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _of_folder(folder: Path) -> ParquetFiles:
    files = _shown_files(folder)
    others = sorted({p.suffix or "(none)" for p in files if p.suffix.lower() not in _SUFFIXES})
    if others or not files:
        raise RelationError(
            f"{folder} holds {'files ending in ' + ', '.join(others) if others else 'no files'}; give a folder of "
            f"{' or '.join(_SUFFIXES)} files."
        )
    dataset = ds.dataset([str(p) for p in files], format="parquet", partitioning="hive", partition_base_dir=str(folder))
    found = {f.path: ds.get_partition_keys(f.partition_expression) for f in dataset.get_fragments()}
    names = list(dict.fromkeys(name for keys in found.values() for name in keys))
    return ParquetFiles(
        paths=tuple(files),
        values=tuple(found[str(p)] for p in files),
        partitions={name: dataset.schema.field(name).type for name in names},
        schema=None,
        version=_stamp(files),
    )


def _of_delta_table(folder: Path) -> ParquetFiles:
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise RelationError(
            f"{folder} is a Delta table, and reading its log needs the package deltalake: "
            "pip install 'semistream[delta]'."
        ) from None
    table = DeltaTable(str(folder))
    _require_plain_files(folder, table.protocol(), table.metadata().configuration)
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path")
    paths = actions.column("path").to_pylist()
    remote = next((path for path in paths if "://" in path), None)
    if remote is not None:
        raise RelationError(f"{folder} refers to {remote}, which is not a local file. Copy the table to this machine.")
    schema = pa.schema(table.schema().to_arrow())
    names = table.metadata().partition_columns
    columns = [actions.column(f"partition.{name}").to_pylist() for name in names]
    return ParquetFiles(
        paths=tuple(folder / unquote(path) for path in paths),
        values=tuple(dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
        if names
        else ({},) * len(paths),
        partitions={name: schema.field(name).type for name in names},
        schema=schema,
        version=table.version(),
    )


def _require_plain_files(folder: Path, protocol: object, configuration: Mapping[str, str]) -> None:
    """Raise `RelationError` for a Delta table whose rows differ from those in its files."""
    features = set(getattr(protocol, "reader_features", None) or ()) - _HARMLESS_FEATURES
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if features:
        raise RelationError(
            f"{folder} is a Delta table with {', '.join(sorted(features))}, so its rows differ from those in its "
            "Parquet files. Rewrite the table without it (REORG TABLE ... APPLY (PURGE), then drop the feature), or "
            "build a relation from a query over the table."
        )


def _shown_files(folder: Path) -> list[Path]:
    """List the files in a folder and its subfolders, without hidden files and folders (names with "." or "_" first)."""
    return sorted(
        p for p in folder.rglob("*") if p.is_file() and not any(part[0] in "._" for part in p.relative_to(folder).parts)
    )


def _stamp(paths: list[Path]) -> int:
    """Hash the names, sizes and modification times of files."""
    text = "\n".join(f"{path}:{file_stamp(path)}" for path in paths)
    return int(xxhash.xxh64_intdigest(text.encode()) >> 1)
