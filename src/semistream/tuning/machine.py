"""Machine: what reading, probing, sorting and giving out cost on one machine, for the cost models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from semistream.relation.disk import SOLID_STATE
from semistream.relation.disk_costs import DiskCosts
from semistream.tuning.checks import require_numbers
from semistream.tuning.work import Work
from semistream.tuning.workload import Workload


@dataclass(frozen=True)
class KernelCosts:
    """Seconds that the kernels take for one tuple, row or value, one after the other on one core.

    ==============  ============================================================  =================
    here            what it does                                                  MESH, Table 1
    ==============  ============================================================  =================
    ``encode_s``    make the code of a stream tuple's key                         c_S
    ``insert_s``    put a tuple into the window                                   c_A
    ``sort_s``      put a tuple into the order of codes                           (none)
    ``probe_s``     look a row of R up in the window                              c_H
    ``look_up_s``   look a stream tuple up in a tuple cache                       c_H of FRONT
    ``expire_s``    take a tuple out of the window                                c_E
    ``output_s``    give out a result, without R's values                         c_O
    ``gather_s``    copy one value of R into a result                             (part of c_O)
    ==============  ============================================================  =================

    The defaults are of the order of what one core of a server takes.
    """

    encode_s: float = 5e-9
    insert_s: float = 40e-9
    sort_s: float = 30e-9
    probe_s: float = 5e-9
    look_up_s: float = 60e-9
    expire_s: float = 10e-9
    output_s: float = 30e-9
    gather_s: float = 8e-9

    def __post_init__(self) -> None:
        require_numbers(self, *(each.name for each in fields(self)), least=0)


@dataclass(frozen=True)
class OperatorCosts:
    """Seconds of processor time that an operator takes for each unit of its work, beside its reads.

    ``tuple_s`` for a stream tuple, ``hit_s`` for one that is looked up in a cache first, ``value_s`` for each value of
    R in a result, ``row_s`` for a row of R that it meets, ``step_s`` for an iteration of its loop, ``packet_s`` for
    taking tuples in, however few.
    """

    tuple_s: float
    value_s: float = 0.0
    row_s: float = 0.0
    step_s: float = 0.0
    hit_s: float = 0.0
    packet_s: float = 0.0

    def __post_init__(self) -> None:
        require_numbers(self, *(each.name for each in fields(self)), least=0)


@dataclass(frozen=True)
class Machine:
    """A machine as the cost models see it: its disk, its kernels, and what its operators take by name."""

    name: str
    disk: DiskCosts
    kernels: KernelCosts = KernelCosts()
    operators: Mapping[str, OperatorCosts] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, self.disk, self.kernels, *sorted(self.operators)))

    def processor_s(self, operator: str, work: Work, workload: Workload) -> float:
        """Seconds of the processor for a tuple; what is not known of an operator takes no time."""
        costs = self.operators.get(operator, _FREE)
        values = workload.results_per_tuple * workload.values_per_result
        own_s = work.joined * (costs.tuple_s + values * costs.value_s)
        found_s = work.looked_up * costs.hit_s + (1 - work.joined) * values * costs.value_s
        loops_s = work.probes * costs.row_s + work.steps * costs.step_s + work.packets * costs.packet_s
        return own_s + found_s + loops_s


_FREE = OperatorCosts(tuple_s=0.0)


DEFAULT_MACHINE = Machine("defaults", SOLID_STATE)
"""A server with a solid-state disk: what is assumed of a machine that was not measured."""
