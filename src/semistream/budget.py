"""MemoryBudget: a ledger of bytes that an operator charges for each of its buffers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from semistream.errors import BudgetError, BudgetExceeded, shortened

_UNITS = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "kib": 2**10,
    "m": 10**6, "mb": 10**6, "mib": 2**20,
    "g": 10**9, "gb": 10**9, "gib": 2**30,
    "t": 10**12, "tb": 10**12, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*|%)\s*$")
_MOST_BYTES = 1 << 60
_ACCEPTED = 'an int of bytes, "64MB", "1GiB" or "10%" (of the relation)'


def parse_bytes(memory: int | str, *, of: int | None = None) -> int:
    """Return ``memory`` in bytes: an int, ``"64MB"``, ``"1GiB"``, or ``"10%"`` of ``of`` bytes.

    >>> parse_bytes("64MB"), parse_bytes("1GiB"), parse_bytes("10%", of=5000)
    (64000000, 1073741824, 500)
    """
    if isinstance(memory, bool) or not isinstance(memory, int | str):
        raise BudgetError(f"memory is {shortened(memory)}; give {_ACCEPTED}.")
    if isinstance(memory, int):
        value = memory
    else:
        found = _SIZE.match(memory)
        if found is None or (found[2] != "%" and found[2].lower() not in _UNITS):
            raise BudgetError(f"memory is {shortened(memory)}; give {_ACCEPTED}.")
        number = min(float(found[1]), 2.0 * _MOST_BYTES)
        if found[2] == "%":
            if of is None:
                raise BudgetError(
                    f"memory is {memory!r}, but there is no relation here to take a share of; give bytes."
                )
            value = math.floor(number * of / 100)
        else:
            value = math.floor(number * _UNITS[found[2].lower()])
    if not 0 < value <= _MOST_BYTES:
        told = f" ({value:,} bytes)" if isinstance(memory, str) and 0 <= value <= _MOST_BYTES else ""
        limit = f"at most {_MOST_BYTES:,} bytes" if value > 0 else "more than zero"
        raise BudgetError(f"memory is {shortened(memory)}{told}; it must be {limit}.")
    return value


def format_bytes(nbytes: int) -> str:
    """Format ``nbytes`` for people, with three digits and a decimal unit: ``"1.2 GB"``."""
    value, unit = float(nbytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{nbytes} B" if unit == "B" else f"{value:.3g} {unit}"


class MemoryBudget:
    """A byte ledger that every buffer of an operator is charged to before it is allocated.

    Buffers are released after they are dropped, so ``used`` never understates, and ``peak`` is its maximum. A charge
    over the limit raises `BudgetExceeded`, so the sum of all buffers never exceeds the limit. Check `free` first.

    Parameters
    ----------
    memory : int or str
        The limit: bytes, text such as "64MB" or "1GiB", or a share such as "10%".
    of : int, optional
        Bytes that a share refers to, usually the size of R.

    Examples
    --------
    >>> budget = MemoryBudget("1kB")
    >>> budget.charge("window", 600); budget.free
    400
    >>> budget.release("window", 600); budget.used, budget.peak
    (0, 600)

    References
    ----------
    docs/operators.md, docs/architecture.md.
    """

    def __init__(self, memory: int | str, *, of: int | None = None) -> None:
        self.limit = parse_bytes(memory, of=of)
        self.used = 0
        self.peak = 0
        self._by_name: dict[str, int] = {}
        self._whole: MemoryBudget | None = None
        self._parts: list[MemoryBudget] = []

    @property
    def free(self) -> int:
        """Bytes still available here, excluding the unused bytes reserved for parts."""
        return self.limit - self.used - sum(part.limit - part.used for part in self._parts)

    @property
    def by_name(self) -> dict[str, int]:
        """Bytes charged now, by buffer name."""
        return {name: held for name, held in self._by_name.items() if held}

    def require(self, least: int, *, purpose: str) -> None:
        """Raise `BudgetError` if the limit is below ``least`` bytes; the error names ``purpose`` and ``least``."""
        if self.limit < least:
            raise BudgetError(
                f"a budget of {self.limit} bytes is too small for {purpose}: "
                f"it needs at least {least} bytes ({format_bytes(least)}). Raise memory to that.",
                least_bytes=least,
            )

    def part(self, nbytes: int) -> MemoryBudget:
        """Return a budget of ``nbytes`` inside this one. A charge to the part also counts here, under the same name.

        >>> whole = MemoryBudget("1kB")
        >>> part = whole.part(300)
        >>> part.charge("window", 200); whole.used, whole.free, part.free
        (200, 700, 100)
        """
        if nbytes > self.free:
            raise BudgetExceeded(f"a part of {nbytes} bytes was requested with {self.free} of {self.limit} free.")
        part = MemoryBudget(nbytes)
        part._whole = self
        self._parts.append(part)
        return part

    def resize(self, limit: int) -> None:
        """Change the limit, which must cover all charges and parts; a part grows by at most its parent's free bytes."""
        kept = self.limit - self.free
        if limit < kept:
            raise BudgetExceeded(f"a budget of {self.limit} bytes cannot shrink to {limit}: {kept} are in use.")
        if self._whole is not None and limit - self.limit > self._whole.free:
            raise BudgetExceeded(f"a part cannot grow to {limit} bytes with {self._whole.free} free.")
        self.limit = limit

    def clear(self) -> None:
        """Release all charges, detach all parts, and reset the peak."""
        for name, held in self.by_name.items():
            self._book(name, -held)
        for part in self._parts:
            part._whole = None
        self._parts.clear()
        self.peak = self.used

    def charge(self, name: str, nbytes: int) -> None:
        """Charge ``nbytes`` to the buffer ``name``. Over the limit, raise `BudgetExceeded` and charge nothing."""
        if nbytes < 0:
            raise BudgetExceeded(f"{name} was charged {nbytes} bytes; a charge cannot be negative.")
        if nbytes > self.free:
            raise BudgetExceeded(
                f"{name} asked for {nbytes} bytes with {self.free} of {self.limit} free ({self.by_name}). "
                "This is a bug in semistream; please report it."
            )
        self._book(name, nbytes)

    def _book(self, name: str, nbytes: int) -> None:
        self.used += nbytes
        self.peak = max(self.peak, self.used)
        self._by_name[name] = self._by_name.get(name, 0) + nbytes
        if self._whole is not None:
            self._whole._book(name, nbytes)

    def release(self, name: str, nbytes: int) -> None:
        """Release ``nbytes`` of the buffer ``name``."""
        held = self._by_name.get(name, 0)
        if nbytes < 0 or nbytes > held:
            raise BudgetExceeded(
                f"{name} released {nbytes} bytes but holds {held}. This is a bug in semistream; please report it."
            )
        self._book(name, -nbytes)

    def recharge(self, name: str, nbytes: int) -> None:
        """Charge or release the difference that makes the buffer ``name`` hold ``nbytes``."""
        more = nbytes - self._by_name.get(name, 0)
        if more > 0:
            self.charge(name, more)
        else:
            self.release(name, -more)

    @contextmanager
    def charged(self, name: str, nbytes: int) -> Iterator[None]:
        """Charge ``nbytes`` to the buffer ``name`` for the duration of a ``with`` block."""
        self.charge(name, nbytes)
        try:
            yield
        finally:
            self.release(name, nbytes)
