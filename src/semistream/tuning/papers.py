"""Profiles of the papers' machines by name, with cost factors derived from the rates the papers print."""

from __future__ import annotations

from semistream.costs.machine import DEFAULT_MACHINE, Machine, OperatorCosts
from semistream.errors import InvalidArgument
from semistream.joins.mesh.cost_model import MeshFactors
from semistream.relation.read.disk_costs import DiskCosts

_PAGE_BYTES = 8192

MESH_MACHINE = MeshFactors(
    seek_s=0.5e-3,
    transfer_s=120e-6,
    expire_s=6e-6,
    stream_s=2e-6,
    add_s=10e-6,
    probe_s=1e-6,
    output_s=8e-6,
    packet_s=0.0,
)
"""Cost factors of the Pentium 4 with a 7,200 rpm disk of MESH 5.1, for pages of 8 KiB.

The paper names its factors (Table 1) but does not print them. These are fitted to the rates it prints (5.2, R of 3.5
million rows of 120 bytes, stream tuples of 20 bytes): 3,500 tuples/s with 2 MB, 6,000 with 4 MB, 26,000 with 40 MB,
each within a tenth if the hash table takes twice a tuple's bytes. With little memory the scan of R dominates. With much
memory the tuples do, at 26 microseconds each; the rates do not determine how these split into the five factors. A
request of a scan costs far less than a random seek of such a disk, because its head hardly moves.
"""


def _machine(name: str, factors: MeshFactors) -> Machine:
    """Build a machine on which every operator has the costs per tuple and row of R that MESHJOIN has."""
    costs = OperatorCosts(
        tuple_s=factors.expire_s + factors.output_s,
        entry_s=factors.stream_s + factors.add_s,
        row_s=factors.probe_s,
        hit_s=factors.probe_s,
        packet_s=factors.packet_s,
    )
    return Machine(
        name,
        DiskCosts(factors.seek_s, transfer_s_per_byte=factors.transfer_s / _PAGE_BYTES, follows=0.0),
        dict.fromkeys(DEFAULT_MACHINE.operators, costs),
    )


PAPER_MACHINES = {"mesh": _machine("MESH 5.1: a Pentium 4 with a disk of 7,200 rpm", MESH_MACHINE)}
"""Profiles by name, to predict joins on the machine of a paper."""


def paper_machine(name: str) -> Machine:
    """Return the machine of a paper by name.

    >>> paper_machine("mesh").disk.seek_s
    0.0005
    """
    if name not in PAPER_MACHINES:
        raise InvalidArgument(f"there is no machine {name!r}; give {', '.join(map(repr, PAPER_MACHINES))}.")
    return PAPER_MACHINES[name]
