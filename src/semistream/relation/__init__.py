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
from semistream.relation.update import Change, Transaction

__all__ = [
    "AnyRelation",
    "BufferedDisk",
    "Change",
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
    "Transaction",
    "greedy_plan",
    "open_relation",
    "optimal_plan",
]
