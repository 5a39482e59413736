"""The papers' machines, as far as their rates tell: named sets of cost factors."""

from __future__ import annotations

from semistream.tuning.mesh_costs import MeshFactors

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
"""The Pentium 4 with a disk of 7,200 rpm of MESH 5.1, for pages of 8 KiB.

The paper names its factors (Table 1) and does not print them. These follow from the rates that it prints (5.2, R of 3.5
million rows of 120 bytes, stream tuples of 20): 3,500 tuples/s with 2 MB, 6,000 with 4 MB, 26,000 with 40 MB, each
within a tenth if the hash table takes twice a tuple's bytes. With little memory the scan of R takes the time, with much
of it the tuples do: 26 microseconds each, of which the rates do not tell how they are shared out. A request of a scan
costs far less than a seek of such a disk, as its head stays where it is.
"""
