"""Machine: the costs of a disk and of the operators on one machine, for the cost models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import require_numbers
from semistream.relation.read.disk import SOLID_STATE
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class OperatorCosts:
    """Seconds of processor time that an operator takes for each unit of its work, beside its reads.

    ``entry_s`` to take a stream tuple in, ``tuple_s`` for all else that is done for one, ``hit_s`` for one that is
    looked up in a cache first and ``miss_s`` if that misses it, ``value_s`` for each value of R in a result, ``row_s``
    for a row of R that it meets, ``step_s`` for an iteration of its loop, ``wait_s`` instead for one in which it waits
    for its read, whatever is read, ``packet_s`` for taking tuples in, however few, ``batch_s`` for giving results out,
    ``level_s`` for each level of tuples that an iteration is done with, ``page_s`` for a page that is looked up,
    ``fresh_s`` more for each value of a row of R that no result of the same pass had before, and ``answers_s`` instead
    of ``batch_s`` where tuples are looked up in a cache first, whose answers come in batches of their own.
    """

    tuple_s: float
    value_s: float = 0.0
    row_s: float = 0.0
    step_s: float = 0.0
    hit_s: float = 0.0
    packet_s: float = 0.0
    batch_s: float = 0.0
    entry_s: float = 0.0
    wait_s: float = 0.0
    miss_s: float = 0.0
    level_s: float = 0.0
    page_s: float = 0.0
    fresh_s: float = 0.0
    answers_s: float = 0.0

    def __post_init__(self) -> None:
        require_numbers(self, *(each.name for each in fields(self)), least=0)


@dataclass(frozen=True)
class Machine:
    """A machine as the cost models see it: its disk, and the costs of its operators by name.

    The disk gives ``at_once`` times as many bytes in a second if it is asked for parts of a run at once, and for the
    next run right after. The system has ``page_cache_bytes`` for the pages of files that are mapped; none, if that is
    not known.
    """

    name: str
    disk: DiskCosts
    operators: Mapping[str, OperatorCosts] = field(default_factory=dict)
    at_once: float = 1.0
    page_cache_bytes: float = 0.0

    def __post_init__(self) -> None:
        require_numbers(self, "at_once")
        require_numbers(self, "page_cache_bytes", least=0)

    def __hash__(self) -> int:
        return hash((self.name, self.disk, *sorted(self.operators)))

    def disk_s(self, work: Work, workload: Workload) -> float:
        """Seconds of the disk for a tuple: SSIJ's S for each seek and T for each page that it reads.

        The system's page cache is taken to hold any page as likely as another.
        """
        cached = min(self.page_cache_bytes / (workload.num_pages * workload.page_bytes), 1.0) if work.mapped else 0.0
        seeks, pages = (1 - cached) * work.seeks, (1 - cached) * work.pages
        taken_s = self.disk.request_s(pages * workload.page_bytes, pages, requests=seeks)
        return taken_s / self.at_once if work.reads_at_once else taken_s

    def processor_s(self, operator: str, work: Work, workload: Workload) -> float:
        """Seconds of the processor for a tuple; what is not known of an operator takes no time."""
        costs = self.operators.get(operator, _FREE)
        own_s = work.joined * (costs.tuple_s + work.looked_up * costs.miss_s)
        own_s += workload.values_per_tuple * costs.value_s + work.fresh * workload.values_per_result * costs.fresh_s
        ahead = work.steps - work.waited
        loops_s = ahead * costs.step_s + work.waited * costs.wait_s + work.probes * costs.row_s
        loops_s += work.level_probes * costs.level_s + work.pages * costs.page_s
        giving_out_s = work.batches * (costs.answers_s if work.looked_up else costs.batch_s)
        return own_s + loops_s + giving_out_s + _entering_s(costs, work)

    def least_s(self, operator: str, workload: Workload) -> float:
        """Seconds that an operator takes for a tuple at the least, even if it reads nothing and its loop is free."""
        costs = self.operators.get(operator, _FREE)
        joined_s = costs.tuple_s + costs.entry_s
        return workload.values_per_tuple * costs.value_s + (min(costs.hit_s, joined_s) if costs.hit_s else joined_s)

    def alone_s(self, operator: str, work: Work, workload: Workload) -> float:
        """Seconds of that in which nothing is read: as tuples gather that one pass is to serve, and as many of them are
        joined with the same row.
        """
        costs = self.operators.get(operator, _FREE)
        gathering_s = _entering_s(costs, work) * work.gathered / work.joined if work.joined else 0.0
        return gathering_s + work.clumped * (costs.tuple_s + workload.values_per_tuple * costs.value_s)


def _entering_s(costs: OperatorCosts, work: Work) -> float:
    """Seconds to look a tuple up in a cache, and to take it in if that misses it."""
    return work.looked_up * costs.hit_s + work.joined * costs.entry_s + work.packets * costs.packet_s


_FREE = OperatorCosts(tuple_s=0.0)


_SWEEP = OperatorCosts(
    tuple_s=4e-9,
    value_s=0.8e-9,
    row_s=11e-9,
    step_s=60e-6,
    packet_s=640e-6,
    batch_s=75e-6,
    entry_s=13e-9,
    wait_s=140e-6,
    level_s=4.2e-6,
    fresh_s=1.2e-9,
)
_CACHE = {"hit_s": 52e-9, "miss_s": 42e-9, "answers_s": 95e-6}
_MESH = OperatorCosts(tuple_s=130e-9, value_s=6e-9, row_s=18e-9, step_s=80e-6, packet_s=600e-6)

DEFAULT_MACHINE = Machine(
    "defaults",
    SOLID_STATE,
    operators={
        "sweep": _SWEEP,
        "engine": replace(_SWEEP, **_CACHE),
        "mesh": _MESH,
        "cmesh": replace(_MESH, **_CACHE),
        "adaptive_mesh": OperatorCosts(tuple_s=90e-9, value_s=6e-9, row_s=15e-9, step_s=2.4e-3),
        "hybrid": OperatorCosts(tuple_s=320e-9, value_s=6e-9, row_s=65e-9, step_s=80e-6, packet_s=0.9e-3),
        "index": OperatorCosts(tuple_s=180e-9, value_s=20e-9, step_s=1.4e-3),
        "nested_loop": OperatorCosts(tuple_s=100e-9, value_s=2e-9, step_s=200e-6, page_s=15e-6, level_s=45e-6),
        "resident": OperatorCosts(tuple_s=65e-9, value_s=6e-9, step_s=350e-6),
    },
)
"""A server with a solid-state disk: what is assumed of a machine that was not measured."""
