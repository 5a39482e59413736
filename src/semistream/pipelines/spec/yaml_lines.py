"""Lines of a YAML text: where a setting stands, and where the text is no YAML."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from semistream.pipelines.spec.bounded_yaml import BoundedLoader


class Lines:
    """Lines of the settings of a text.

    >>> Lines("name: a\\nsteps:\\n  - join: {on: id}\\n").of(("steps", 0, "join", "where"))
    3
    """

    def __init__(self, text: str) -> None:
        self._root = yaml.compose(text, BoundedLoader)

    def of(self, location: Sequence[int | str]) -> int | None:
        """Return the line of a setting, or of the closest part around it in the text; None for the whole text.

        Parts of the location that are not in the text are passed over.
        """
        node, line = self._root, None
        for part in location:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            elif isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == part), None)
                if found is not None:
                    line, node = found[0].start_mark.line + 1, found[1]
        return line


def syntax_error(error: yaml.YAMLError) -> str:
    """Describe why a text is no YAML, with the line and what stands there."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"{error.reason} (at position {error.position})"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    context = f" {error.context}" if error.context else ""
    shown = f":\n{mark.get_snippet()}" if mark.get_snippet() else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}{context}{shown}"
