"""Files of a folder as a source: Spark lists new files, and each batch reads the content of its own."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from semistream.errors import PipelineError
from semistream.pipelines.batch.workers import BatchInput
from semistream.pipelines.inputs.parquet_files import parquet_inputs, require_readable
from semistream.pipelines.spec.column_types import column_type
from semistream.pipelines.spec.source_spec import FileSource
from semistream.pipelines.task.batch_task import RAW
from semistream.spark.sources.base import BatchSource

_WHOLE_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_LOOKED_AT, _LINE = 100, 1 << 16  # lines of a JSON file to check for extra fields, and the characters of a line
_MOST_COLUMNS = "1000000"  # of a CSV line; Spark stops at a longer one
_NAMED = 20  # extra columns that a remark names


class FolderSource(BatchSource):
    """Source of the new files in a folder, a limited number per batch.

    Tasks read Parquet files themselves, which is much faster than through Spark, unless rows must go ``through_spark``
    first. A JSON or CSV line that is not a row, or has a value of another type, is passed on as raw text.
    """

    def __init__(self, spec: FileSource, *, through_spark: bool) -> None:
        require_folder(spec.path)
        self._spec = spec
        self._through_spark = through_spark

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return a stream of the paths of new files; Spark's ``binaryFile`` format reads no content for them."""
        spec = self._spec
        reader = spark.readStream.format("binaryFile")
        if not self.tells_arrival:
            reader = reader.option("maxFilesPerTrigger", spec.files_per_batch)
        return reader.schema(_WHOLE_FILES).load(str(spec.path)).select("path")

    def files(self, df: DataFrame, logged: Callable[[], list[str] | None]) -> list[str]:
        """Return the files of a batch, sorted by path."""
        uris = logged()
        return sorted(map(local_path, [row["path"] for row in df.collect()] if uris is None else uris))

    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:  # noqa: ARG002
        """Return the input of a batch, from its files."""
        if not files:
            return BatchInput()
        kinds: dict[str, Callable[[Sequence[str], SparkSession], BatchInput]] = {
            "parquet": self._parquet,
            "json": self._json,
            "csv": self._csv,
        }
        return kinds[self._spec.format](files, spark)

    def _parquet(self, files: Sequence[str], spark: SparkSession) -> BatchInput:
        spec = self._spec
        tasks = spark.sparkContext.defaultParallelism
        inputs = parquet_inputs(files, spec.arrow_schema, tasks, stop=spec.on_schema_change == "stop")
        remarks = _new_columns(inputs.new_columns)
        if not self._through_spark:
            return BatchInput(None, inputs.splits, remarks)
        wrong = [split for split in inputs.splits if split.reason is not None]
        right = sorted({split.path for split in inputs.splits} - {split.path for split in wrong})
        rows = None
        if right:
            read = spark.read.schema(from_arrow_schema(spec.arrow_schema)).parquet(*right)
            own = [sf.col(f"`{name}`") for name in read.columns]
            rows = read.select(*own, sf.lit(None).cast("string").alias(RAW), *self.about_files)
        return BatchInput(rows, wrong, remarks)

    def _json(self, files: Sequence[str], spark: SparkSession) -> BatchInput:
        new = sorted({name for file in files for name in _json_fields(file)} - set(self._spec.columns))
        read = self._lenient(spark, self._spec.columns).json(list(files))
        return BatchInput(self._arrived(read), [], _new_columns(new))

    def _csv(self, files: Sequence[str], spark: SparkSession) -> BatchInput:
        """Read CSV files; with headers, columns are found by name, in any order."""
        spec = self._spec
        if spec.options.get("header", "false").lower() != "true":
            return BatchInput(self._arrived(self._lenient(spark, spec.columns).csv(list(files))))
        by_header: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for file in files:
            by_header[_csv_header(file, spec.options)].append(file)
        frames, new = [], set[str]()
        for header, having in by_header.items():
            missing = [name for name in spec.columns if name not in header]
            if missing and spec.on_schema_change == "stop":
                raise PipelineError(
                    f"the source has changed: {having[0]} has no column {', '.join(map(repr, missing))}; it has "
                    f"{', '.join(header)}. Change the pipeline's schema and start it again, or send such files to "
                    "the quarantine (on_schema_change: quarantine)."
                )
            new |= set(header) - set(spec.columns)
            frames.append(self._raw_lines(spark, having) if missing else self._by_header(spark, header, having))
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.union(frame)
        return BatchInput(rows, [], _new_columns(sorted(new)))

    def _by_header(self, spark: SparkSession, header: Sequence[str], files: Sequence[str]) -> DataFrame:
        types = {name: self._spec.columns.get(name, "string") for name in header}
        wanted = [sf.col(f"`{name}`") for name in (*self._spec.columns, RAW)]
        return self._lenient(spark, types).csv(list(files)).select(*wanted, *self.about_files)

    def _raw_lines(self, spark: SparkSession, files: Sequence[str]) -> DataFrame:
        """Read files that lack a column of the source as unreadable rows: the raw text of each line."""
        nothing = [sf.lit(None).cast(type_).alias(name) for name, type_ in self._spec.columns.items()]
        return spark.read.text(list(files)).select(*nothing, sf.col("value").alias(RAW), *self.about_files)

    def _arrived(self, rows: DataFrame) -> DataFrame:
        own = [sf.col(f"`{name}`") for name in rows.columns]
        return rows.select(*own, *self.about_files) if self.about_files else rows

    @property
    def about_files(self) -> list[Column]:
        """Columns behind the raw text: the modification time of each row's file, if the source tells arrival."""
        if not self.tells_arrival:
            return []
        return [sf.unix_millis(sf.col("_metadata.file_modification_time")).alias(self.came)]

    def _lenient(self, spark: SparkSession, columns: dict[str, str]) -> DataFrameReader:
        """Return a reader that puts a malformed line into the raw text column."""
        fields = [StructField(name, from_arrow_type(column_type(type_))) for name, type_ in columns.items()]
        reader = spark.read.schema(StructType([*fields, StructField(RAW, StringType())]))
        for name, value in {"maxColumns": _MOST_COLUMNS, **self._spec.options}.items():
            reader = reader.option(name, value)
        return reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", RAW)


def require_folder(path: Path) -> None:
    """Raise `PipelineError` if the source is not a folder."""
    if not path.is_dir():
        raise PipelineError(f"the source {path} is not a folder. Create it, or give the one that receives the files.")


def local_path(uri: str) -> str:
    """Return the local path of a URI as Spark gives it; any other text is returned unchanged.

    >>> local_path("file:///data/new%20orders.json")
    '/data/new orders.json'
    """
    try:
        parsed = urlparse(uri)
    except ValueError:  # such as a bracket where a host would be
        return uri
    return unquote(parsed.path) if parsed.scheme in ("", "file") else uri


def _new_columns(names: Iterable[str]) -> list[str]:
    listed = list(names)
    if not listed:
        return []
    more = [f"and {len(listed) - _NAMED:,} more"] if len(listed) > _NAMED else []
    named = ", ".join([*listed[:_NAMED], *more])
    return [f"the source has columns outside of the pipeline's schema, which are ignored: {named}"]


def _json_fields(path: str) -> set[str]:
    """Return the names of the fields in the first lines of a file of JSON lines.

    They only serve a remark: a line that cannot be parsed, for whatever reason, has none. Spark decides about it.
    """
    found: set[str] = set()
    with _opened(path) as file:
        for line in islice(iter(partial(file.readline, _LINE), ""), _LOOKED_AT):
            with suppress(Exception):
                row = json.loads(line)
                if isinstance(row, dict):
                    found.update(row)
    return found


def _csv_header(path: str, options: dict[str, str]) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file; none if it cannot be parsed."""
    with _opened(path) as file:
        rows = csv.reader(file, delimiter=options.get("sep", options.get("delimiter", ",")))
        try:
            return tuple(name.strip() for name in next(rows, []))
        except csv.Error:
            return ()


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    """Open a file of the source as text; raise `PipelineError` if it cannot be read."""
    try:
        with Path(path).open(newline="", encoding="utf-8", errors="replace") as file:
            yield file
    except OSError as error:
        require_readable(path, error)
        raise
