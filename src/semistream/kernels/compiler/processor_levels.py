"""Processor levels: what machine code may assume of the processors that run it."""

from __future__ import annotations

import hashlib
from functools import lru_cache

LEVELS = {
    "x86-64-v4": "avx,avx2,avx512bw,avx512cd,avx512dq,avx512f,avx512vl,bmi,bmi2,cx16,f16c,fma,lzcnt,movbe,popcnt,sahf,"
    "sse3,sse4.1,sse4.2,ssse3",
    "x86-64-v3": "avx,avx2,bmi,bmi2,cx16,f16c,fma,lzcnt,movbe,popcnt,sahf,sse3,sse4.1,sse4.2,ssse3",
}
"""Levels of the x86-64 psABI and their features in LLVM's words, best first. A level is also LLVM's processor name."""

_Processor = tuple[str, str, str]  # Numba's "magic tuple": platform, processor, features


@lru_cache
def own_target(processor: _Processor) -> str:
    """Return the name of the code that this process compiles: its level, or one for exactly this processor.

    >>> own_target(("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2"))
    'x86-64-v3'
    >>> own_target(("x86_64-unknown-linux-gnu", "skylake", "+avx2"))
    'skylake-d84904'
    """
    _, name, features = processor
    if name in LEVELS:
        return name
    return f"{name}-{hashlib.sha256(features.encode()).hexdigest()[:6]}"


@lru_cache
def usable_targets(processor: _Processor) -> tuple[str, ...]:
    """Return the names of all code that this processor runs, best first; only its own if it stands for a level.

    >>> features = ",".join("+" + feature for feature in LEVELS["x86-64-v3"].split(","))
    >>> usable_targets(("x86_64-unknown-linux-gnu", "haswell", features))[1:]
    ('x86-64-v3',)
    """
    platform, name, features = processor
    if name in LEVELS:
        return (name,)
    own, has = own_target(processor), {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    levels = LEVELS if platform.startswith("x86_64") else {}
    runs = [level for level, needed in levels.items() if has.issuperset(needed.split(","))]
    return own, *(level for level in runs if level != own)


def numba_environment(level: str) -> dict[str, str]:
    """Return the environment in which Numba compiles for a level."""
    features = ",".join(f"+{feature}" for feature in LEVELS[level].split(","))
    return {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": features}
