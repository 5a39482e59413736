"""SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): pseudo-random words that depend only on a seed and a position."""

import numpy as np

from semistream.kernels.compiler import part

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Distance between the inputs of two consecutive positions."""
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@part
def mix(z: np.uint64) -> np.uint64:
    """Apply the generator's last steps, which scatter close inputs. They are a bijection: inputs stay distinct."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))
