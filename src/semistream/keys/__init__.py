"""Join-key columns as 64-bit codes: in the order of the keys where a type has one, else Spark's xxhash64."""

from semistream.keys.codec import KeyCodec
from semistream.keys.ranges import CodeRanges

__all__ = ["CodeRanges", "KeyCodec"]
