"""The profile of MESH's machine has the factors that its rates tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semistream.joins.mesh.cost_model import MeshFactors
from semistream.tuning.papers import MESH_MACHINE, PAPER_MACHINES

PROFILED = MeshFactors.of(PAPER_MACHINES["mesh"], page_bytes=8192, values_per_result=14)


def test_the_profile_of_the_machine_has_its_factors() -> None:
    of_tuples = {"expire_s": 0.0, "stream_s": 0.0, "add_s": 0.0, "output_s": 0.0}
    assert replace(PROFILED, **of_tuples) == replace(MESH_MACHINE, **of_tuples), "seek, transfer, probe and packet"
    assert PROFILED.stream_s == pytest.approx(MESH_MACHINE.stream_s + MESH_MACHINE.add_s)
    assert PROFILED.row_s(1) == pytest.approx(MESH_MACHINE.row_s(1))
