"""The cloud-report workload has the documented properties of the paper's data."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from experiments.cloud_file import grid_cell

from semistream.datasets import CloudReports
from semistream.datasets.clouds import CELLS
from semistream.errors import InvalidArgument


@pytest.fixture(scope="module")
def septembers() -> list[pa.Table]:
    return [pa.Table.from_batches(CloudReports(year).batches()) for year in (1985, 1986)]


def test_a_september_has_just_over_a_million_reports_of_about_650_cells(septembers: list[pa.Table]):
    for table, year in zip(septembers, (1985, 1986), strict=True):
        assert 1_000_000 < table.num_rows < 1_050_000
        assert len(table.column("cell").unique()) == CELLS == 648
        times = table.column("time").to_numpy()
        assert (np.diff(times) >= np.timedelta64(0)).all()
        assert times[0] == np.datetime64(f"{year}-09-01T00:00")
        assert times[-1] == np.datetime64(f"{year}-09-30T21:00")
        assert np.unique(times).size == 240


def test_cells_are_those_of_the_positions(septembers: list[pa.Table]):
    table = septembers[0]
    latitude, longitude = table.column("latitude").to_numpy(), table.column("longitude").to_numpy()
    assert (grid_cell(latitude, longitude) == table.column("cell").to_numpy()).all()
    assert -90 <= latitude.min() <= latitude.max() <= 90
    assert 0 <= longitude.min() <= longitude.max() < 360
    stations = table.group_by("station").aggregate([("cell", "count_distinct")])
    assert stations.num_rows == 7000
    assert set(stations.column("cell_count_distinct").to_pylist()) == {1}


def test_both_years_have_similar_skewed_distributions_and_other_reports(septembers: list[pa.Table]):
    """So half of the memory can have most of the results (WINDOW 5.2.5)."""
    shares = [np.bincount(table.column("cell").to_numpy(), minlength=CELLS) / table.num_rows for table in septembers]
    assert np.corrcoef(*shares)[0, 1] > 0.999
    assert np.sort(shares[0])[::-1][: CELLS // 10].sum() > 0.5
    first, second = (table.column("station").to_numpy()[:1000] for table in septembers)
    assert (first != second).mean() > 0.9


def test_a_seed_and_a_year_fix_everything():
    one, same, other = CloudReports(1985, seed=1), CloudReports(1985, seed=1), CloudReports(1985, seed=2)
    assert one.hour(7).equals(same.hour(7))
    assert not one.hour(7).equals(other.hour(7))
    assert one.hour(8).num_rows > 1.5 * one.hour(7).num_rows  # 0 and 21 UTC


@pytest.mark.parametrize("wrong", [{"year": 2001}, {"stations": 647}, {"skew": -1.0}, {"skew": float("nan")}])
def test_what_cannot_work_is_refused(wrong: dict[str, float]):
    with pytest.raises(InvalidArgument, match=f"{next(iter(wrong))} is"):
        CloudReports(**wrong)  # type: ignore[arg-type]
