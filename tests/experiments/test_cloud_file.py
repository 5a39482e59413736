"""The loader of cloud reports: every field from its columns, and broken lines named with file, line and field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from experiments.cloud_file import FIELDS, MalformedRecord, grid_cell, read_cloud_reports
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument

#: Two reports cut by hand by the table: 1 Sep 1985 0 UTC, 51.48 N 0.45 W; 30 Sep 1985 21 UTC, 33.95 S 151.18 E.
LONDON = "850901001 514835955037721618 7 4 512-190090099 7-312   3"
SYDNEY = "850930210-339515118947671-10 0-1 0 0 0  0  000 0 105 -99"


def write(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "SEP85L"
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def load(path: Path, rows: int = 1 << 16) -> pa.Table:
    return pa.Table.from_batches(list(read_cloud_reports(path, rows=rows)))


def test_fields_are_read_from_their_columns(tmp_path: Path):
    assert len(LONDON) == len(SYDNEY) == 56
    assert sum(field.chars for field in FIELDS) == 56
    london, sydney = load(write(tmp_path, LONDON, SYDNEY)).to_pylist()
    assert london["time"].isoformat() == "1985-09-01T00:00:00+00:00"
    assert sydney["time"].isoformat() == "1985-09-30T21:00:00+00:00"
    assert (london["latitude"], london["longitude"], london["station"]) == (51.48, 359.55, 3772)
    assert (sydney["latitude"], sydney["longitude"], sydney["station"]) == (-33.95, 151.18, 94767)
    rest = {name: value for name, value in london.items() if name not in ("time", "latitude", "longitude", "station")}
    assert rest == {
        "cell": 14 * 36 + 35, "sky_brightness": 1, "land_ocean": 1, "present_weather": 61, "total_cloud": 8,
        "lower_amount": 7, "lower_height": 4, "low_type": 5, "middle_type": 12, "high_type": -1, "middle_amount": 900,
        "high_amount": 900, "middle_seen": 9, "high_seen": 9, "change_code": 7, "solar_altitude": -312,
        "lunar_illuminance": 3,
    }  # fmt: skip
    assert (sydney["present_weather"], sydney["lower_height"], sydney["solar_altitude"]) == (-1, -1, 105)
    assert sydney["lunar_illuminance"] == -99


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_batches_and_ends_of_lines_change_nothing(tmp_path: Path, end: str, rows: int):
    path = write(tmp_path, *[LONDON, SYDNEY] * 3 + [LONDON], end=end)
    path.write_bytes(path.read_bytes().removesuffix(end.encode()))  # as some editors leave it
    batches = list(read_cloud_reports(path, rows=rows))
    assert [batch.num_rows for batch in batches] == [rows] * (7 // rows) + [7 % rows] * (7 % rows > 0)
    assert pa.Table.from_batches(batches).column("station").to_pylist() == [3772, 94767] * 3 + [3772]


def test_extended_reports_are_read_up_to_column_56(tmp_path: Path):
    assert load(write(tmp_path, LONDON + " 1013" * 4 + "  12")).num_rows == 1


@pytest.mark.parametrize(
    ("column", "text", "says"),
    [
        (3, "13", r"'13' as month in columns 3 to 4; it must be a whole number from 1 to 12"),
        (5, "31", "day 31 in month 9"),
        (7, "24", "as hour"),
        (9, "2", "as sky_brightness in columns 9 to 9"),
        (10, " 9001", "as latitude in columns 10 to 14"),
        (10, "5-148", "as latitude"),
        (10, "--148", "as latitude"),
        (10, "514 8", "as latitude"),
        (10, "51.48", "as latitude"),
        (15, "36001", "as longitude"),
        (20, "     ", "'     ' as station"),
        (28, "9", "from 0 to 8"),
        (53, "12x4", "'12x4' as lunar_illuminance"),
    ],
)
def test_a_broken_field_is_named(tmp_path: Path, column: int, text: str, says: str):
    broken = SYDNEY[: column - 1] + text + SYDNEY[column - 1 + len(text) :]
    path = write(tmp_path, *[LONDON] * 6, broken, LONDON)
    for rows in (2, 100):
        with pytest.raises(MalformedRecord, match=f"SEP85L, line 7, has .*{says}"):
            load(path, rows)


@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("broken", [LONDON[:-1], LONDON + " ", "", LONDON + "\r"])
def test_a_line_of_another_length_is_named(tmp_path: Path, broken: str, rows: int):
    path = write(tmp_path, *[LONDON] * 5, broken, *[SYDNEY] * 5)
    with pytest.raises(MalformedRecord, match=r"SEP85L, line 6, has \d+ characters; a cloud report has 56"):
        load(path, rows)


def test_no_reports_are_no_batches(tmp_path: Path):
    assert list(read_cloud_reports(write(tmp_path))) == []


def test_compressed_and_missing_files_are_refused_with_what_to_do(tmp_path: Path):
    (tmp_path / "SEP85L.Z").write_bytes(b"\x1f\x9d\x90abc")
    with pytest.raises(MalformedRecord, match=r"uncompress SEP85L\.Z"):
        list(read_cloud_reports(tmp_path / "SEP85L.Z"))
    with pytest.raises(InvalidArgument, match="There is no file"):
        read_cloud_reports(tmp_path / "SEP86L")


@settings(deadline=None)
@given(st.integers(-9000, 9000), st.integers(0, 36000))
def test_cells_cover_the_earth(north: int, east: int):
    latitude, longitude = north / 100, east / 100
    (cell,) = grid_cell(np.array([latitude]), np.array([longitude])).tolist()
    row, column = divmod(cell, 36)
    assert row * 10 - 90 <= latitude < row * 10 - 80 + (latitude == 90)
    assert column * 10 <= longitude % 360 < column * 10 + 10
    assert 0 <= cell < 648
