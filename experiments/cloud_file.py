"""Reader of the original files of cloud reports, the real workload of the WINDOW paper, into Arrow batches.

The files are those of "Edited synoptic cloud reports from ships and land stations over the globe". Without them,
`semistream.datasets.CloudReports` generates similar reports.

A file holds one month of reports from land (such as ``SEP85L``) or from ships, one line of 56 characters per report:

=======  =====================================  =========================
columns  field                                  values
=======  =====================================  =========================
1-8      year, month, day, hour (UTC)           two digits each
9        sky brightness                         0 too dark, 1 bright enough
10-14    latitude x 100                         -9000 to 9000
15-19    longitude x 100, east                  0 to 36000
20-24    station (ships: source deck)           0 to 99999
25       land or ocean                          1, 2
26-27    present weather                        -1 to 99
28       total cloud cover, eighths             0 to 8
29-30    lower cloud amount, eighths            -1 to 8
31-32    lower cloud base height, code          -1 to 9
33-34    low cloud type, code                   -1 to 11
35-36    middle cloud type, code                -1 to 12
37-38    high cloud type, code                  -1 to 9
39-41    middle cloud amount x 100              0 to 800, 900
42-44    high cloud amount x 100                0 to 800, 900
45       middle cloud amount, not overlapped    0 to 9
46       high cloud amount, not overlapped      0 to 9
47-48    change code                            0 to 9
49-52    solar altitude                         -900 to 900
53-56    relative lunar illuminance x 100       -999 to 999
=======  =====================================  =========================

-1 marks a missing value; amounts use 9 and 900 instead. The table describes the first twenty items, 56 characters, of
the extended reports of 80 characters (NDP-026C, Table 9). Programs for the original files (NDP-026B) use the same
columns. Two facts are not confirmed for the original files: the unit of solar altitude (tenths of a degree in the
extended files) and the bounds of illuminance. The reader therefore returns both fields unscaled and accepts wide
bounds. It also accepts lines of 80 characters and ignores everything after the first 56.

References
----------
C. J. Hahn, S. G. Warren & J. London (1996), ORNL/CDIAC-77, NDP-026B; C. J. Hahn & S. G. Warren (1999), NDP-026C.
WINDOW 5.2.5 joins the land reports of September 1985 and September 1986 by grid cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument, SemistreamError

RECORD_CHARS = 56
EXTENDED_CHARS = 80
GRID_DEGREES = 10
_COMPRESSED = {b"\x1f\x9d": "uncompress", b"\x1f\x8b": "gunzip"}


class MalformedRecord(SemistreamError, ValueError):
    """A record of a data file cannot be parsed; the message names the file, the line and the field."""


class Field(NamedTuple):
    """A field of a record: its first column (from 1), its width in characters, and its smallest and largest value."""

    name: str
    column: int
    chars: int
    least: int
    most: int


FIELDS = (
    Field("year", 1, 2, 0, 99),
    Field("month", 3, 2, 1, 12),
    Field("day", 5, 2, 1, 31),
    Field("hour", 7, 2, 0, 23),
    Field("sky_brightness", 9, 1, 0, 1),
    Field("latitude", 10, 5, -9000, 9000),
    Field("longitude", 15, 5, 0, 36000),
    Field("station", 20, 5, 0, 99999),
    Field("land_ocean", 25, 1, 1, 2),
    Field("present_weather", 26, 2, -1, 99),
    Field("total_cloud", 28, 1, 0, 8),
    Field("lower_amount", 29, 2, -1, 8),
    Field("lower_height", 31, 2, -1, 9),
    Field("low_type", 33, 2, -1, 11),
    Field("middle_type", 35, 2, -1, 12),
    Field("high_type", 37, 2, -1, 9),
    Field("middle_amount", 39, 3, 0, 900),
    Field("high_amount", 42, 3, 0, 900),
    Field("middle_seen", 45, 1, 0, 9),
    Field("high_seen", 46, 1, 0, 9),
    Field("change_code", 47, 2, 0, 9),
    Field("solar_altitude", 49, 4, -900, 900),
    Field("lunar_illuminance", 53, 4, -999, 999),
)
SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("s", tz="UTC")),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("cell", pa.int32()),
    ]
    + [(field.name, pa.int32()) for field in FIELDS[4:] if field.name not in ("latitude", "longitude")]
)


def read_cloud_reports(path: str | PathLike[str], *, rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """Read the reports of a file in file order, in batches of at most ``rows``.

    Columns follow the table above, with three changes: ``time`` replaces year, month, day and hour (all years are in
    the 20th century), ``latitude`` and ``longitude`` are in degrees, and ``cell`` is the cell in the paper's grid of
    10 by 10 degrees (`grid_cell`). No record is skipped: a line of the wrong length, or a field outside its bounds or
    not a whole number, raises `MalformedRecord`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "SEP85L"
    ...     _ = path.write_text("850901001 514835955037721618 7 4 512-190090099 7-312   3\\n")
    ...     (batch,) = read_cloud_reports(path)
    >>> [(row["station"], row["latitude"], row["longitude"], row["cell"]) for row in batch.to_pylist()]
    [(3772, 51.48, 359.55, 539)]
    """
    rows = whole_number("rows", rows, least=1)
    file = Path(path)
    if not file.is_file():
        raise InvalidArgument(
            f"There is no file {str(file)!r}; give the path of a month of cloud reports, such as SEP85L."
        )
    return _batches(file, rows)


def grid_cell(
    latitude: npt.NDArray[np.float64], longitude: npt.NDArray[np.float64], degrees: int = GRID_DEGREES
) -> npt.NDArray[np.int32]:
    """Return the grid cell of each position, numbered from the south pole and eastwards within a row.

    Cells are squares of ``degrees``; the default gives a grid of 18 by 36. The north pole belongs to the northernmost
    row, and 360 degrees east is the same as 0.

    >>> grid_cell(np.array([-90.0, -85.5, 90.0]), np.array([0.0, 359.9, 360.0])).tolist()
    [0, 35, 612]
    """
    rows, columns = 180 // degrees, 360 // degrees
    row = np.minimum(np.floor_divide(latitude + 90, degrees), rows - 1)
    return (row * columns + np.floor_divide(longitude % 360, degrees)).astype(np.int32)


def _batches(file: Path, rows: int) -> Iterator[pa.RecordBatch]:
    with file.open("rb") as lines:
        first = lines.readline()
        if (packer := _COMPRESSED.get(first[:2])) is not None:
            raise MalformedRecord(f"{file} is compressed; unpack it first: {packer} {file.name}")
        end = b"\r\n" if first.endswith(b"\r\n") else b"\n"
        line_bytes = len(first.removesuffix(end) + end)
        lines.seek(0)
        number = 1
        while block := lines.read(line_bytes * rows):
            # The last line of a file may lack its newline.
            records = _records(file, number, block if block.endswith(b"\n") else block + end, line_bytes)
            yield _batch(file, number, records)
            number += len(records)


def _records(file: Path, number: int, block: bytes, line_bytes: int) -> npt.NDArray[np.uint8]:
    """Return the characters of each line in a block that starts at line ``number``; raise if lengths differ."""
    text = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    spans = np.diff(ends, prepend=-1)
    lengths = spans - 1 - (text[np.maximum(ends - 1, 0)] == ord("\r"))
    wrong = np.flatnonzero((spans != line_bytes) | ((lengths != RECORD_CHARS) & (lengths != EXTENDED_CHARS)))
    if wrong.size:
        raise MalformedRecord(
            f"{file}, line {number + wrong[0]}, has {lengths[wrong[0]]} characters; a cloud report has {RECORD_CHARS}, "
            f"or {EXTENDED_CHARS} in the extended format, and all lines end alike. Correct or remove the line."
        )
    return text.reshape(ends.size, -1)[:, :RECORD_CHARS]


def _batch(file: Path, number: int, records: npt.NDArray[np.uint8]) -> pa.RecordBatch:
    values = {field.name: _parse(file, number, records, field) for field in FIELDS}
    months = ((1900 + values["year"] - 1970) * 12 + values["month"] - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (values["day"] - 1).astype("timedelta64[D]")
    if (missing := np.flatnonzero(days.astype("datetime64[M]") != months)).size:
        at = missing[0]
        raise MalformedRecord(
            f"{file}, line {number + at}, has day {values['day'][at]} in month {values['month'][at]}, which is "
            "shorter. Correct or remove the line."
        )
    times = days.astype("datetime64[s]") + values["hour"].astype("timedelta64[h]")
    latitude, longitude = values["latitude"] / 100, values["longitude"] / 100
    columns = {"time": times, "latitude": latitude, "longitude": longitude, "cell": grid_cell(latitude, longitude)}
    arrays = [pa.array(columns.get(field.name, values.get(field.name)), field.type) for field in SCHEMA]
    return pa.record_batch(arrays, schema=SCHEMA)


def _parse(file: Path, number: int, records: npt.NDArray[np.uint8], field: Field) -> npt.NDArray[np.int64]:
    """Parse a field as whole numbers: blanks, an optional sign, then digits."""
    chars = records[:, field.column - 1 : field.column - 1 + field.chars]
    digit = (chars >= ord("0")) & (chars <= ord("9"))
    blank, minus = chars == ord(" "), chars == ord("-")
    value = np.zeros(len(chars), dtype=np.int64)
    for place in range(field.chars):
        value = np.where(digit[:, place], value * 10 + chars[:, place] - ord("0"), value)
    value = np.where(minus.any(axis=1), -value, value)
    # The order is blanks, then an optional sign, then digits to the end: the kinds never decrease along the field.
    kind = np.where(digit, 2, np.where(minus, 1, 0))
    fine = (digit | blank | minus).all(axis=1) & (np.diff(kind, axis=1) >= 0).all(axis=1) & digit[:, -1]
    fine &= (minus.sum(axis=1) <= 1) & (value >= field.least) & (value <= field.most)
    if not fine.all():
        at = int(np.flatnonzero(~fine)[0])
        raise MalformedRecord(
            f"{file}, line {number + at}, has {bytes(chars[at]).decode('latin-1')!r} as {field.name} in columns "
            f"{field.column} to {field.column + field.chars - 1}; it must be a whole number from {field.least} to "
            f"{field.most}. Correct or remove the line."
        )
    return value
