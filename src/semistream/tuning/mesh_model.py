"""What a scan of MESHJOIN serves: the counts behind MESH (2) and (3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from semistream.relation.disk_costs import DiskCosts
from semistream.tuning.checks import require_numbers
from semistream.tuning.work import Work
from semistream.tuning.workload import Workload


@dataclass(frozen=True)
class MeshModel:
    """MESHJOIN with a window of ``window_rows`` (w * N_R / b of MESH) that reads up to ``run_pages`` (b) at once.

    While all of R goes by once, each slot of the window serves one tuple, whatever its key is. A scan is one request
    after the other, so only its first begins with a seek.
    """

    window_rows: float
    run_pages: float

    def __post_init__(self) -> None:
        require_numbers(self, "window_rows", "run_pages")

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """What each tuple takes of a scan."""
        served, pages = served_at_once(self.window_rows, workload.batch_rows), workload.num_pages
        return Work(
            seeks=1 / served,
            pages=pages / served,
            steps=math.ceil(pages / self.run_pages) / served,
            probes=workload.relation_rows / served,
            waits=served / 2,
            longest_wait=served,
        )


def served_at_once(capacity: float, batch_rows: float) -> float:
    """Tuples that go through together if up to ``capacity`` can, and none may be left at the end of a batch.

    >>> served_at_once(100, 1000), served_at_once(100, 250), served_at_once(100, 30)
    (100.0, 83.33333333333333, 30.0)
    """
    return batch_rows / math.ceil(batch_rows / capacity) if math.isfinite(batch_rows) else float(capacity)
