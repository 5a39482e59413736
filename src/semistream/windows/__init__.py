"""Window joins of two streams in less memory than they need, their optimum, and static join approximation."""

from semistream.windows.optimum import OfflineOptimum, optimal_offline
from semistream.windows.window_pairs import WindowPairs, window_pairs

__all__ = [
    "OfflineOptimum",
    "WindowPairs",
    "optimal_offline",
    "window_pairs",
]
