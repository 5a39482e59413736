"""Machine: costs of the disk and of the operators on one machine, for the cost models."""

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
    """Processor seconds of an operator per unit of its `Work`, reads excluded.

    =============  ======================================================================================
    ``tuple_s``    a joined stream tuple, beyond ``entry_s``
    ``value_s``    a value of R in a result
    ``row_s``      a row of R matched against waiting tuples
    ``step_s``     an iteration of the operator's loop
    ``hit_s``      a stream tuple looked up in a tuple cache
    ``packet_s``   a packet of accepted tuples, whatever its size
    ``batch_s``    a batch of results
    ``entry_s``    a stream tuple accepted by the join
    ``wait_s``     an iteration that waits for its read, instead of ``step_s``; the transfer is excluded
    ``miss_s``     a tuple that missed the tuple cache, in addition to ``hit_s``
    ``level_s``    a level of waiting tuples matched in an iteration
    ``page_s``     a page looked up
    ``fresh_s``    a value from a row of R not yet used in this pass, in addition to ``value_s``
    ``answers_s``  a batch of results of a join behind a tuple cache, instead of ``batch_s``: the cache
                   gives out its results in batches of its own
    =============  ======================================================================================
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

    The disk transfers ``at_once`` times as many bytes per second if lanes request the parts of a run in parallel and
    the next run right after it (`ReadLanes`). The system has ``page_cache_bytes`` to cache pages of mapped files; 0 if
    unknown.
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
        """Return disk seconds per tuple: SSIJ's S for each seek and T for each page read.

        Every page is assumed to be equally likely in the system's page cache.
        """
        cached = min(self.page_cache_bytes / (workload.num_pages * workload.page_bytes), 1.0) if work.mapped else 0.0
        seeks, pages = (1 - cached) * work.seeks, (1 - cached) * work.pages
        taken_s = self.disk.request_s(pages * workload.page_bytes, pages, requests=seeks)
        return taken_s / self.at_once if work.reads_at_once else taken_s

    def processor_s(self, operator: str, work: Work, workload: Workload) -> float:
        """Return processor seconds per tuple; an operator without known costs takes none."""
        costs = self.operators.get(operator, _FREE)
        own_s = work.joined * (costs.tuple_s + work.looked_up * costs.miss_s)
        own_s += workload.values_per_tuple * costs.value_s + work.fresh * workload.values_per_result * costs.fresh_s
        ahead = work.steps - work.waited
        loops_s = ahead * costs.step_s + work.waited * costs.wait_s + work.probes * costs.row_s
        loops_s += work.level_probes * costs.level_s + work.pages * costs.page_s
        giving_out_s = work.batches * (costs.answers_s if work.looked_up else costs.batch_s)
        return own_s + loops_s + giving_out_s + _entering_s(costs, work)

    def least_s(self, operator: str, workload: Workload) -> float:
        """Return a lower bound of the seconds per tuple: no reads, and an operator loop without cost."""
        costs = self.operators.get(operator, _FREE)
        joined_s = costs.tuple_s + costs.entry_s
        return workload.values_per_tuple * costs.value_s + (min(costs.hit_s, joined_s) if costs.hit_s else joined_s)

    def alone_s(self, operator: str, work: Work, workload: Workload) -> float:
        """Return the part of `processor_s` during which nothing is read.

        It covers the tuples gathered for a pass before it starts, and tuples joined with the same row in large numbers.
        """
        costs = self.operators.get(operator, _FREE)
        gathering_s = _entering_s(costs, work) * work.gathered / work.joined if work.joined else 0.0
        return gathering_s + work.clumped * (costs.tuple_s + workload.values_per_tuple * costs.value_s)


def _entering_s(costs: OperatorCosts, work: Work) -> float:
    """Return seconds per tuple to look it up in a cache and, if it misses, to accept it into the join."""
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
"""Assumed costs of a machine without a profile: a server with a solid-state disk."""
