"""The process that fuzzes one kind: libFuzzer, by atheris, over its target. Run by ``python -m tests.fuzz``."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import atheris

MOST_GROWTH_BYTES = 64 << 20
_SETTLED = 2000  # inputs after which memory must not grow further
_LOOK_EVERY = 1000
_TRACED = ["semistream", "json", "csv", "yaml", "fractions", "click", "typer"]
_KERNELS = re.compile(r"^@(kernel|part|subroutine)\b", re.MULTILINE)


def _kernels() -> list[str]:
    """Modules of compiled code, which cannot be traced: Numba compiles the bytecode that tracing would change."""
    source = Path(find_spec("semistream").submodule_search_locations[0])
    return [
        ".".join(["semistream", *file.relative_to(source).with_suffix("").parts])
        for file in source.rglob("*.py")
        if _KERNELS.search(file.read_text())
    ]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Fuzz the kind named by the first argument; all others go to libFuzzer."""
    kind, *options = sys.argv[1:]
    with atheris.instrument_imports(include=_TRACED, exclude=_kernels()):
        from tests.fuzz.targets import TARGETS, corpus

        run = TARGETS[kind](Path(tempfile.mkdtemp(prefix=f"semistream-fuzz-{kind}-")))
    from semistream.errors import SemistreamError

    for _, content in corpus(kind):  # compiles kernels and imports modules, which takes its time once
        with suppress(SemistreamError):
            run(content)
    seen, settled = 0, 0

    def one(content: bytes) -> None:
        nonlocal seen, settled
        seen += 1
        with suppress(SemistreamError, InterruptedError):  # libFuzzer's own timer interrupts system calls
            run(content)
        if seen >= _SETTLED and seen % _LOOK_EVERY == 0:
            gc.collect()
            held = _resident()
            settled = settled or held
            if held - settled > MOST_GROWTH_BYTES:
                raise MemoryError(f"resident memory grew from {settled:,} to {held:,} bytes in {seen:,} inputs")

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
