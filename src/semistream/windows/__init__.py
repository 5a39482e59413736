"""Window joins of two streams in limited memory, their offline optimum, and static join approximation."""

from semistream.windows.join.archive import Archive, FileArchive, MemoryArchive
from semistream.windows.join.operator import POLICIES, WindowJoin
from semistream.windows.join.repair import repair
from semistream.windows.join.slow_cpu import SlowCpu
from semistream.windows.join.window_stats import WindowStats
from semistream.windows.measures.archive_metric import archive_metric
from semistream.windows.measures.sets import (
    cosine,
    dice,
    jaccard,
    matching,
    max_subset_error,
    overlap,
    symmetric_difference,
)
from semistream.windows.measures.transport import earth_movers_distance, match_and_compare
from semistream.windows.optimum.exact_memory import exact_memory
from semistream.windows.optimum.offline import OfflineOptimum, optimal_offline
from semistream.windows.optimum.pairs import WindowPairs, count_window_pairs, window_pairs
from semistream.windows.policies import Expected, Life, Policy, Prob, Random
from semistream.windows.probabilities import ComputedProbabilities, GivenProbabilities, LearntProbabilities
from semistream.windows.streams.band import Band
from semistream.windows.streams.lengths import Tuples
from semistream.windows.truncation.greedy import adg, ndg
from semistream.windows.truncation.many_relations import independent_truncation
from semistream.windows.truncation.optdp import optdp
from semistream.windows.truncation.truncated_join import TruncatedJoin

__all__ = [
    "Archive",
    "Band",
    "ComputedProbabilities",
    "Expected",
    "FileArchive",
    "GivenProbabilities",
    "LearntProbabilities",
    "Life",
    "MemoryArchive",
    "OfflineOptimum",
    "POLICIES",
    "Policy",
    "Prob",
    "Random",
    "SlowCpu",
    "TruncatedJoin",
    "Tuples",
    "WindowJoin",
    "WindowPairs",
    "WindowStats",
    "adg",
    "archive_metric",
    "cosine",
    "count_window_pairs",
    "dice",
    "earth_movers_distance",
    "exact_memory",
    "independent_truncation",
    "jaccard",
    "match_and_compare",
    "matching",
    "max_subset_error",
    "ndg",
    "optdp",
    "optimal_offline",
    "overlap",
    "repair",
    "symmetric_difference",
    "window_pairs",
]
