"""Window joins of two streams in less memory than they need, their optimum, and static join approximation."""

from semistream.windows.archive_metric import archive_metric
from semistream.windows.average_degree import adg
from semistream.windows.independent import independent_truncation
from semistream.windows.node_degree import ndg
from semistream.windows.optdp import optdp
from semistream.windows.optimum import OfflineOptimum, optimal_offline
from semistream.windows.set_measures import (
    cosine,
    dice,
    jaccard,
    matching,
    max_subset_error,
    overlap,
    symmetric_difference,
)
from semistream.windows.transport_measures import earth_movers_distance, match_and_compare
from semistream.windows.truncated import TruncatedJoin
from semistream.windows.window_pairs import WindowPairs, window_pairs

__all__ = [
    "OfflineOptimum",
    "TruncatedJoin",
    "WindowPairs",
    "adg",
    "archive_metric",
    "cosine",
    "dice",
    "earth_movers_distance",
    "independent_truncation",
    "jaccard",
    "match_and_compare",
    "matching",
    "max_subset_error",
    "ndg",
    "optdp",
    "optimal_offline",
    "overlap",
    "symmetric_difference",
    "window_pairs",
]
