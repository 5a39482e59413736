"""Column statistics of a Parquet file in Delta's format, by which readers skip files."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXT = 32  # characters kept of a string bound
_COLUMNS = 32  # columns with statistics, as in Delta's own writers
_EXACT_DIGITS = 15  # decimal digits that a JSON number holds exactly in every reader


def file_stats(metadata: pq.FileMetaData, schema: pa.Schema, unbounded: Collection[str] = ()) -> dict[str, Any]:
    """Return ``numRecords`` and, for each column, its ``nullCount`` and, if known, its ``minValues`` and ``maxValues``.

    String bounds are cut to 32 characters: the lower one rounded down, the upper one up. ``unbounded`` names columns
    with a NaN, which Parquet's own bounds ignore and some readers order above all other values. They get no bounds, nor
    do columns with values that Python cannot represent, such as dates after the year 9999.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    for field in list(schema)[:_COLUMNS]:
        if field.name not in places:
            continue  # nested: Parquet stores one column for each leaf
        found = [group.column(places[field.name]).statistics for group in groups]
        if any(each is None or not each.has_null_count for each in found):
            continue
        nulls[field.name] = sum(each.null_count for each in found)
        bounded = [each for each in found if each.has_min_max]
        empty = [
            group.num_rows - each.null_count for group, each in zip(groups, found, strict=True) if not each.has_min_max
        ]
        if bounded and not any(empty) and field.name not in unbounded:
            low, high = _bounds(bounded, field.type)
            if low is not None and high is not None:
                least[field.name], most[field.name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _bounds(groups: Sequence[pq.Statistics], type_: pa.DataType) -> tuple[Any, Any]:
    try:
        return _lower(min(each.min for each in groups), type_), _upper(max(each.max for each in groups), type_)
    except (OverflowError, ValueError):  # a date or time outside of Python's range, or invalid UTF-8
        return None, None


def _lower(value: Any, type_: pa.DataType) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    return _plain(value, type_, up=False)


def _upper(value: Any, type_: pa.DataType) -> Any:
    """Return an upper bound in JSON: a long string is cut, and its last incrementable character incremented."""
    if not isinstance(value, str):
        return _plain(value, type_, up=True)
    if len(value) <= _TEXT:
        return value
    for end in range(_TEXT, 0, -1):
        raised = ord(value[end - 1]) + 1
        if raised < 0xD800:
            return value[: end - 1] + chr(raised)
    return None


def _plain(value: Any, type_: pa.DataType, *, up: bool) -> Any:
    """Return a bound as a JSON value, or None if JSON cannot represent it."""
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return _milliseconds(value, zoned=type_.tz is not None, up=up)
    if isinstance(value, date):
        return value.isoformat()
    if pa.types.is_decimal(type_) and type_.precision <= _EXACT_DIGITS:
        return int(value) if type_.scale == 0 else float(value)
    return None


def _milliseconds(value: datetime, *, zoned: bool, up: bool) -> str:
    """Round a timestamp down or up to milliseconds, the finest unit of Delta's statistics."""
    moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    if up and cut != moment:
        cut += timedelta(milliseconds=1)
    return cut.isoformat(timespec="milliseconds") + ("Z" if zoned else "")
