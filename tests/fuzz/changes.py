"""Changes of inputs, drawn from a seed: for what no coverage guides, and for the seconds of fuzzing in the suite."""

from __future__ import annotations

import random

_VALUES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63)
_WORDS = [
    *(b"9" * 30, b"1e999", b"-1", b"NaN", b"2024-99-99", b"99999-01-01", b"null", b"[" * 60, b"{" * 60),
    *(b"../", b"*a", b"<<", b"${"),
    *(b"\xff", b"\0", b"\xed\xa0\x80", b"\\ud800", b'"', b"'", b"\\", b"\n", b"\r", b",", b"}", b"]", b" "),
]  # fmt: skip


def changed(content: bytes, rng: random.Random) -> bytes:
    """Change a few bytes: to values and words that tend to do harm, or by cutting and copying a part."""
    new = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(new) + 1), rng.choice((1, 2, 4, 8))
        match rng.randrange(5):
            case 0:
                new[at : at + size] = (rng.choice(_VALUES) % 256**size).to_bytes(size, "little")
            case 1:
                new[at : at + rng.randint(0, 4)] = rng.choice(_WORDS)
            case 2:
                del new[at : at + rng.randint(1, 20)]
            case 3:
                begin = rng.randrange(len(new) + 1)
                new[at:at] = new[begin : begin + rng.randint(1, 40)]
            case 4 if at < len(new):
                new[at] ^= 1 << rng.randrange(8)
    return bytes(new)
