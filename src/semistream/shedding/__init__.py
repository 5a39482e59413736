"""Shedding: choose the rows to drop when the stream is faster than the join, and estimate totals from the rest."""

from semistream.shedding.choose_strategy import STRATEGIES, Loss, choose_strategy, read_decision
from semistream.shedding.cluster_sampling import ClusterSampling
from semistream.shedding.decision import Account, Decision, Kept, SampleDesign, batch_seed
from semistream.shedding.estimate import SAMPLE_COLUMNS, estimate, with_sample_columns
from semistream.shedding.keep_and_sample import KeepW, SampleW
from semistream.shedding.match_counts import MatchCounts
from semistream.shedding.optimal_offline import OfflineSchedule, OptimalOffline
from semistream.shedding.strategy import Strategy
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import PartSummary
from semistream.shedding.top_w import TopW

__all__ = [
    "SAMPLE_COLUMNS",
    "STRATEGIES",
    "Account",
    "ClusterSampling",
    "Decision",
    "Kept",
    "KeepW",
    "Loss",
    "MatchCounts",
    "OfflineSchedule",
    "OptimalOffline",
    "PartSummary",
    "SampleDesign",
    "SampleW",
    "Strategy",
    "StreamPart",
    "TopW",
    "batch_seed",
    "choose_strategy",
    "estimate",
    "read_decision",
    "with_sample_columns",
]
