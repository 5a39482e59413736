"""Join-key columns as 64-bit codes: in the order of the keys where a type has one, else Spark's xxhash64."""

from semistream.keys.codec import KeyCodec

__all__ = ["KeyCodec"]
