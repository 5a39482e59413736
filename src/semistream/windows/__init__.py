"""Two streams joined in windows with less memory than they need, the optimum of that, and static join approximation."""

from semistream.windows.archive import Archive, FileArchive, MemoryArchive
from semistream.windows.archive_metric import archive_metric
from semistream.windows.average_degree import adg
from semistream.windows.band import Band
from semistream.windows.exact_memory import exact_memory
from semistream.windows.expected import Expected
from semistream.windows.independent import independent_truncation
from semistream.windows.lengths import Tuples
from semistream.windows.life import Life
from semistream.windows.node_degree import ndg
from semistream.windows.optdp import optdp
from semistream.windows.optimum import OfflineOptimum, optimal_offline
from semistream.windows.policy import Policy
from semistream.windows.prob import Prob
from semistream.windows.probabilities import ComputedProbabilities, GivenProbabilities, LearntProbabilities
from semistream.windows.random_policy import Random
from semistream.windows.repair import repair
from semistream.windows.set_measures import (
    cosine,
    dice,
    jaccard,
    matching,
    max_subset_error,
    overlap,
    symmetric_difference,
)
from semistream.windows.slow_cpu import SlowCpu
from semistream.windows.transport_measures import earth_movers_distance, match_and_compare
from semistream.windows.truncated import TruncatedJoin
from semistream.windows.window_join import POLICIES, WindowJoin
from semistream.windows.window_pairs import WindowPairs, count_window_pairs, window_pairs
from semistream.windows.window_stats import WindowStats

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
