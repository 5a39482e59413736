"""CloudReports: generated cloud reports of weather stations, like the real workload of the WINDOW paper."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument

GRID_DEGREES = 10
CELLS = (180 // GRID_DEGREES) * (360 // GRID_DEGREES)
HOURS = 30 * 8
_MAIN_HOURS_SHARE, _OTHER_HOURS_SHARE = 0.75, 0.45  # shares of the stations that report
_COVER = np.array([0.2, 0.08, 0.07, 0.07, 0.06, 0.07, 0.09, 0.14, 0.22])  # weights of 0 to 8 eighths


class CloudReports:
    """Generator of the cloud reports of one September: one batch per synoptic hour, about a million reports in total.

    Follows the documented data: readings of land stations in September, one stream for 1985 and one for 1986, just
    over a million reports each; a grid of 18 by 36 cells of 10 degrees, about 650 join values; two streams with
    similar distributions (WINDOW 5.2.5); eight synoptic hours a day, every three hours from 0 UTC.

    Assumes the rest, because the sources do not specify it. There are 7000 stations, which keep their positions from
    year to year. Every cell has at least one station; the others follow Zipf's law over the cells in random order.
    Three quarters of the stations report at 0, 6, 12 and 18 UTC, and 45 % at the hours between, independently of each
    other. Reports of one hour come in random order. Cloud cover is independent of time and place, and mostly clear or
    overcast.

    Equal parameters give equal reports, and each hour can be generated alone.

    Parameters
    ----------
    year : int
        Year of the September, from 1900 to 1999. It changes the reports but not the stations.
    stations : int
        Number of stations, at least one for each of the 648 cells.
    skew : float
        Exponent of Zipf's law over the cells, from 0 to 1000; 0 spreads the stations evenly.
    seed : int
        Seed of the stations and reports.

    Examples
    --------
    >>> september = CloudReports(1985)
    >>> batch = september.hour(0)
    >>> batch.schema.names
    ['time', 'latitude', 'longitude', 'cell', 'station', 'sky_brightness', 'total_cloud']
    >>> batch.column("time")[0].as_py().isoformat(), batch.num_rows
    ('1985-09-01T00:00:00+00:00', 5298)

    References
    ----------
    WINDOW 5.2.5 joins the land reports of September 1985 and September 1986 by grid cell. C. J. Hahn, S. G. Warren &
    J. London (1996), ORNL/CDIAC-77, NDP-026B.
    """

    def __init__(self, year: int = 1985, *, stations: int = 7000, skew: float = 1.0, seed: int = 0) -> None:
        self.year = whole_number("year", year, least=1900, most=1999)
        self.stations = whole_number("stations", stations, least=CELLS)
        self.seed = whole_number("seed", seed, least=0)
        if not 0 <= skew <= 1000:
            raise InvalidArgument(f"skew is {skew!r}; give a number from 0 (even) to 1000.")
        rng = np.random.default_rng([self.seed, 0])
        weights = rng.permutation(np.arange(1, CELLS + 1, dtype=np.float64) ** -skew)
        counts = 1 + rng.multinomial(self.stations - CELLS, weights / weights.sum())
        cells = np.repeat(np.arange(CELLS), counts)
        rows, columns = np.divmod(cells, 360 // GRID_DEGREES)
        within = rng.integers(0, GRID_DEGREES * 100, (2, self.stations)) / 100  # hundredths of a degree, like the files
        self._latitude = rows * GRID_DEGREES - 90 + within[0]
        self._longitude = columns * GRID_DEGREES + within[1]
        self._cell = cells.astype(np.int32)

    def hour(self, number: int) -> pa.RecordBatch:
        """Return the reports of one of the 240 synoptic hours (from 0). Repeated calls return the same reports."""
        number = whole_number("number", number, least=0, most=HOURS - 1)
        rng = np.random.default_rng([self.seed, 1, self.year, number])
        share = _MAIN_HOURS_SHARE if number % 2 == 0 else _OTHER_HOURS_SHARE
        station = rng.permutation(np.flatnonzero(rng.random(self.stations) < share))
        time = np.datetime64(f"{self.year}-09-01", "s") + np.timedelta64(3 * number, "h")
        local_hour = (3 * number + self._longitude[station] / 15) % 24
        return pa.record_batch(
            {
                "time": pa.array(np.full(station.size, time), pa.timestamp("s", tz="UTC")),
                "latitude": self._latitude[station],
                "longitude": self._longitude[station],
                "cell": self._cell[station],
                "station": station.astype(np.int32),
                "sky_brightness": ((local_hour >= 6) & (local_hour < 18)).astype(np.int32),
                "total_cloud": rng.choice(9, size=station.size, p=_COVER / _COVER.sum()).astype(np.int32),
            }
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the reports of the month, one batch per hour."""
        return (self.hour(number) for number in range(HOURS))
