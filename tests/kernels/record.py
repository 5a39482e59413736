"""Note the signatures with which kernels were called: ``python -m tests.kernels.record``, after the suite.

Kernels that were not yet in ``signatures.json`` were compiled while the tests ran, and are in the store now.
"""

from __future__ import annotations

import json
import sys

from semistream.kernels.compiler.signatures import FILE, dispatcher_of, read_signatures, type_of
from semistream.kernels.compiler.store import STORE


def main() -> None:
    known = {
        kernel: [words for words in signatures if len(words) == found.py_func.__code__.co_argcount]
        for kernel, signatures in read_signatures().items()
        if (found := dispatcher_of(kernel)) is not None
    }
    added = 0
    for name in STORE.names():
        for header, _ in STORE.read(name):
            kernel, words = json.loads(header)
            found = dispatcher_of(kernel)
            is_current = found and found._cache.name_of(tuple(map(type_of, words))) == name.partition("/")[2]
            if is_current and words not in known.setdefault(kernel, []):
                known[kernel].append(words)
                added += 1
    known = {kernel: sorted(signatures, key=json.dumps) for kernel, signatures in known.items() if signatures}
    FILE.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")
    sys.stdout.write(f"{added} signatures are new; {sum(map(len, known.values()))} in all\n")


if __name__ == "__main__":
    main()
