"""All kernels compiled ahead: what users call is among them, and nothing is left over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from semistream.errors import InvalidArgument
from semistream.kernels.compiler.compile_all import compile_all, level_of_this_machine, missing_kernels
from semistream.kernels.compiler.processor_levels import usable_targets
from semistream.kernels.compiler.signatures import dispatcher_of, read_signatures, type_of, words_of

USE = """
import json, sys
import numpy as np, pyarrow as pa
import semistream
from numba.core.dispatcher import Dispatcher
from semistream.kernels.compiler.signatures import read_signatures, words_of
from semistream.kernels.compiler.stored_code import compiled_here
rng = np.random.default_rng(1)
n = 50_000
wide = pa.table({
    "id": np.arange(n), "i": np.arange(n, dtype=np.int32), "f": rng.random(n), "s": [f"name {i}" for i in range(n)],
    "b": rng.random(n) < 0.5, "d": pa.array(np.arange(n) % 9999, pa.int32()).cast(pa.date32()),
    "t": pa.array(np.arange(n)).cast(pa.timestamp("us")), "maybe": pa.array(rng.random(n), mask=rng.random(n) < 0.1),
})
products = rng.integers(0, n + n // 10, n)
orders = pa.table({"order": np.arange(n), "product": products, "note": [f"n{i}" for i in range(n)]})
relation = semistream.Relation.build(wide, sys.argv[1] + "/r", key="id")
by_name = semistream.Relation.build(wide, sys.argv[1] + "/s", key="s")
for operator in ("auto", "engine", "sweep", "mesh", "adaptive_mesh", "cmesh", "hybrid", "index", "resident"):
    memory = "8MB" if operator == "resident" else "30%"
    rows = semistream.join(orders, relation, on={"product": "id"}, how="left", operator=operator, memory=memory)
    assert rows.read_all().num_rows == n
names = orders.append_column("name", pa.array([f"name {i}" for i in orders["product"].to_numpy()]))
assert semistream.join(names, by_name, on={"name": "s"}, how="left", memory="30%").read_all().num_rows == n
relation.update(upserts=wide.slice(0, 100), deletes=pa.table({"id": [5]}))
known, unknown = read_signatures(), []
modules = [module for name, module in sys.modules.items() if name.startswith("semistream")]
for kernel in {value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}:
    name = f"{kernel.py_func.__module__}:{kernel.py_func.__qualname__}"
    for arguments in kernel.signatures:
        words = [words_of(each) for each in arguments]
        if words not in known.get(name, []):
            unknown.append([name, words])
print(json.dumps([unknown, compiled_here.kernels]))
"""


def test_no_join_compiles_after_it(tmp_path: Path) -> None:
    """Its signatures are known. If not, run ``python -m tests.kernels.record``."""
    compile_all()
    ran = subprocess.run([sys.executable, "-c", USE, str(tmp_path)], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    unknown, compiled = json.loads(ran.stdout)
    assert unknown == []
    assert compiled == 0, ran.stderr


def test_every_signature_fits_its_kernel() -> None:
    level = level_of_this_machine()
    done = compile_all()
    assert done.level == level
    assert missing_kernels(level) == {}
    for kernel, signatures in read_signatures().items():
        arguments = dispatcher_of(kernel).py_func.__code__.co_argcount
        assert signatures
        assert all(len(words) == arguments for words in signatures), kernel
        assert [[words_of(type_of(word)) for word in words] for words in signatures] == signatures


def test_a_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no processor level 'x86-64-v9'; give one of x86-64-v4, x86-64-v3"):
        compile_all("x86-64-v9")


def test_a_machine_without_levels_has_only_its_own_code() -> None:
    assert usable_targets(("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")) == ("neoverse-n1-d9f814",)
