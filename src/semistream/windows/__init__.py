"""Window joins of two streams in less memory than they need, their optimum, and static join approximation."""

from semistream.windows.average_degree import adg
from semistream.windows.independent import independent_truncation
from semistream.windows.node_degree import ndg
from semistream.windows.optdp import optdp
from semistream.windows.optimum import OfflineOptimum, optimal_offline
from semistream.windows.truncated import TruncatedJoin
from semistream.windows.window_pairs import WindowPairs, window_pairs

__all__ = [
    "OfflineOptimum",
    "TruncatedJoin",
    "WindowPairs",
    "adg",
    "independent_truncation",
    "ndg",
    "optdp",
    "optimal_offline",
    "window_pairs",
]
