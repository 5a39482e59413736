"""What the demo needs beyond the library itself; said before any work is done."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from semistream.errors import SemistreamError

LEAST_JAVA = 17
_INSTALL_JAVA = (
    "Install it with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu) or `brew install openjdk@17` (macOS)"
)
_PACKAGES = ("pyspark", "pandas", "matplotlib")


def require_packages() -> None:
    """Refuse to start without the packages of the extras ``spark`` and ``plot``."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise SemistreamError(
            f"the demo needs {' and '.join(missing)}. Install with `pip install 'semistream[spark,plot]'`."
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
