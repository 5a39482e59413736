"""Paths that users give: local ones, or URLs of local files. Every other scheme is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from semistream.errors import InvalidArgument, shortened

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters or more: one letter is a drive of Windows
_LOCAL = "file"
_MOST_CHARACTERS = 4000


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as a local path; raise `InvalidArgument` for a scheme such as ``s3://``.

    ``file:///folder`` is the local path ``/folder``. A `Path` has lost one slash of ``s3://``, and is refused as well.

    >>> str(local_path("file:///data/my%20products")), str(local_path("products"))
    ('/data/my products', 'products')
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument(f"a path is a {type(path).__name__} ({path!r}); give text or a pathlib.Path.")
    text = os.fsdecode(path)
    if "\0" in text or len(text) > _MOST_CHARACTERS:
        fault = (
            "a character NUL"
            if "\0" in text
            else f"{len(text):,} characters; at most {_MOST_CHARACTERS:,} are possible"
        )
        raise InvalidArgument(f"the path {shortened(text)} has {fault}. Give another path.")
    found = _SCHEME.match(text)
    if found is None:
        return Path(text)
    rest = text[found.end() - 1 :]
    host = rest[2:].partition("/")[0] if rest.startswith("//") else ""
    if found[1].lower() != _LOCAL or host not in ("", "localhost"):
        raise InvalidArgument(
            f"{shortened(text)} has the scheme {found[1]!r}; semistream works only with paths of a mounted file "
            "system, or file:/// URLs. Copy the data there, or mount the store (on a cluster: on the driver and all "
            "executors) and give the path of the mount. For a local folder of this name, give its absolute path."
        )
    return local_path(unquote(rest.removeprefix("//" + host) if rest.startswith("//") else rest))
