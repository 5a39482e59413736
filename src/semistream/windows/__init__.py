"""Two streams joined in sliding windows, exactly or with the best use of too little memory (WINDOW)."""

from semistream.windows.archive import Archive, FileArchive, MemoryArchive
from semistream.windows.band import Band
from semistream.windows.expected import Expected
from semistream.windows.lengths import Tuples
from semistream.windows.life import Life
from semistream.windows.policy import Policy
from semistream.windows.prob import Prob
from semistream.windows.probabilities import ComputedProbabilities, GivenProbabilities, LearntProbabilities
from semistream.windows.random_policy import Random
from semistream.windows.repair import repair
from semistream.windows.slow_cpu import SlowCpu
from semistream.windows.window_join import POLICIES, WindowJoin
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
    "POLICIES",
    "Policy",
    "Prob",
    "Random",
    "SlowCpu",
    "Tuples",
    "WindowJoin",
    "WindowStats",
    "repair",
]
