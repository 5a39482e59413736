"""Encoding of join keys as 64-bit codes: order-preserving where the type allows it, else Spark's xxhash64."""

from semistream.keys.codec import KeyCodec
from semistream.keys.ranges import CodeRanges

__all__ = ["CodeRanges", "KeyCodec"]
