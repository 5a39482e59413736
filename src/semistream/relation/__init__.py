"""The relation R on disk: build, open, scan, look up, update, verify."""

from semistream.relation.open import AnyRelation, open_relation
from semistream.relation.parquet.parquet_relation import ParquetRelation
from semistream.relation.parquet.reader import ParquetReader
from semistream.relation.read.disk import BufferedDisk, DirectDisk, Disk, DiskCounts, SimulatedDisk
from semistream.relation.read.disk_costs import DiskCosts
from semistream.relation.read.page_run import PageRun
from semistream.relation.read.read_plan import PageSequence, PageSlots, ReadPlan, greedy_plan, optimal_plan
from semistream.relation.read.run_reader import RunReader
from semistream.relation.relation import Relation
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
