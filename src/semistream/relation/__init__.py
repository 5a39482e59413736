"""R on disk: build, open, scan, look up, update, verify."""

from semistream.relation.any_relation import AnyRelation, open_relation
from semistream.relation.disk import BufferedDisk, DirectDisk, Disk, DiskCounts, SimulatedDisk
from semistream.relation.disk_costs import DiskCosts
from semistream.relation.page_run import PageRun
from semistream.relation.page_slots import PageSlots
from semistream.relation.parquet_reader import ParquetReader
from semistream.relation.parquet_relation import ParquetRelation
from semistream.relation.read_plan import PageSequence, ReadPlan, greedy_plan, optimal_plan
from semistream.relation.relation import Relation
from semistream.relation.run_reader import RunReader

__all__ = [
    "AnyRelation",
    "BufferedDisk",
    "DirectDisk",
    "Disk",
    "DiskCosts",
    "DiskCounts",
    "PageRun",
    "PageSequence",
    "PageSlots",
    "ParquetReader",
    "ParquetRelation",
    "ReadPlan",
    "Relation",
    "RunReader",
    "SimulatedDisk",
    "greedy_plan",
    "open_relation",
    "optimal_plan",
]
