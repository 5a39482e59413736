"""What commands on Spark need beyond the library itself; said before any work is done."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from semistream.errors import SemistreamError

LEAST_JAVA = 17
_INSTALL_JAVA = (
    "Install it with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu) or `brew install openjdk@17` (macOS)"
)
SPARK = {"pyspark": "spark", "pandas": "spark"}
DELTA = {"deltalake": "delta"}
PLOT = {"matplotlib": "plot"}


def require_packages(what: str, packages: Mapping[str, str] = SPARK) -> None:
    """Refuse to go on with ``what`` without the packages it needs; each comes with an extra of ours."""
    if missing := [name for name in packages if find_spec(name) is None]:
        extras = ",".join(dict.fromkeys(packages.values()))
        raise SemistreamError(
            f"{what} needs {' and '.join(missing)}. Install with `pip install 'semistream[{extras}]'`."
        )


def require_java() -> None:
    """Refuse to start without the Java that Spark would use: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    where = f"in JAVA_HOME ({home})" if home else "on the PATH"
    if java is None:
        raise SemistreamError(f"Spark needs Java {LEAST_JAVA} or newer, and there is none {where}. {_INSTALL_JAVA}.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise SemistreamError(f"{java} does not start: {said.strip() or 'it says nothing'}. {_INSTALL_JAVA}.")
    if int(found[1]) < LEAST_JAVA:
        raise SemistreamError(
            f"{java} is Java {found[1]}; Spark needs {LEAST_JAVA} or newer. {_INSTALL_JAVA}, "
            "and set JAVA_HOME to where it is."
        )
