"""What a scan of MESHJOIN serves: the counts behind MESH (2) and (3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from semistream.relation.disk_costs import DiskCosts
from semistream.tuning.checks import require_numbers
from semistream.tuning.mesh_costs import MeshCosts, MeshFactors
from semistream.tuning.mesh_tuner import MeshMemoryModel, MeshTuner
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
    packet_rows: float = math.inf  # that are taken in at once, at most

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
            packets=1 / min(self.packet_rows, served),
        )


@dataclass(frozen=True)
class AdaptiveMeshModel:
    """AMESHJOIN in a memory: `MeshModel` with the b and w of the greatest rate on the disk at hand.

    The processor's time is left out of the choice: it does not depend on b, and is the same for each tuple.
    """

    memory: MeshMemoryModel

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """What each tuple takes of a scan with these b and w."""
        return self.tuned(workload, costs).work(workload, costs)

    def tuned(self, workload: Workload, costs: DiskCosts) -> MeshModel:
        """MESHJOIN with the b and w that it runs with."""
        page_s = costs.request_s(workload.page_bytes, 1) - costs.seek_s
        factors = MeshFactors(
            costs.seek_s, page_s, expire_s=0.0, stream_s=0.0, add_s=0.0, probe_s=0.0, output_s=0.0, packet_s=0.0
        )
        best = MeshTuner(MeshCosts(factors, workload.rows_per_page), self.memory).greatest_rate()
        pages, rows = best.pages_per_step, best.rows_per_step
        return MeshModel(min(rows, self.memory.most_rows(pages)) * math.ceil(workload.num_pages / pages), pages)


def served_at_once(capacity: float, batch_rows: float) -> float:
    """Tuples that go through together if up to ``capacity`` can, and none may be left at the end of a batch.

    >>> served_at_once(100, 1000), served_at_once(100, 250), served_at_once(100, 30)
    (100.0, 83.33333333333333, 30.0)
    """
    return batch_rows / math.ceil(batch_rows / capacity) if math.isfinite(batch_rows) else float(capacity)
