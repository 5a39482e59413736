"""YAML by the rules of version 1.2, within bounds: no text of any shape takes long to read or raises a raw error."""

from __future__ import annotations

import re
from typing import Any

import yaml

MOST_BYTES = 1_000_000
"""The most bytes of a pipeline file."""

_MOST_DEPTH = 50
_MOST_NODES = 20_000  # with the content of an alias counted wherever it stands
_MOST_DIGITS = 100  # characters of a scalar that is no string
_MERGE = "tag:yaml.org,2002:merge"  # tag of the key <<
_HALF = re.compile("[\ud800-\udfff]")
_STRING = "tag:yaml.org,2002:str"
_WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


class TooLarge(yaml.MarkedYAMLError):  # type: ignore[misc]
    """A text exceeds a bound."""


def load(text: str) -> Any:
    """Return the content of a text; raise `TooLarge` or another `YAMLError`, which name the line."""
    return yaml.load(text, BoundedLoader)


class BoundedLoader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML loader with the rules of YAML 1.2: ``on``, ``off``, ``yes`` and ``no`` are strings, keys are unique."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._nodes = 0
        self._nodes_of: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; refuse nesting, and nodes with all that their aliases stand for, beyond the bounds."""
        mark, is_alias, before = self.peek_event().start_mark, self.check_event(yaml.AliasEvent), self._nodes
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise TooLarge(None, None, f"more than {_MOST_DEPTH} levels of nesting; write it flatter", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._nodes_of:
            raise yaml.composer.ComposerError(None, None, "an alias that contains itself; write the value out", mark)
        self._nodes += self._nodes_of[id(node)] if is_alias else 1
        if self._nodes > _MOST_NODES:
            raise TooLarge(None, None, f"more than {_MOST_NODES:,} values and keys, aliases written out", mark)
        if not is_alias:
            self._nodes_of[id(node)] = self._nodes - before
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Construct a value; refuse a number or date that is too long or does not exist."""
        is_plain = isinstance(node, yaml.ScalarNode) and node.tag != _STRING
        if is_plain and len(node.value) > _MOST_DIGITS:
            raise TooLarge(
                None,
                None,
                f"a number or date of {len(node.value):,} characters; at most {_MOST_DIGITS}",
                node.start_mark,
            )
        if isinstance(node, yaml.ScalarNode) and _HALF.search(node.value):
            raise yaml.constructor.ConstructorError(
                None, None, "half of a character (\\ud800 to \\udfff); write it whole", node.start_mark
            )
        try:
            return super().construct_object(node, deep)
        except _WRONG as error:
            kind = node.tag.rpartition(":")[2]
            what = f"{node.value!r}" if is_plain else "this"
            raise yaml.constructor.ConstructorError(
                None, None, f"{what} is no {kind} ({error}); put it in quotes if it is text", node.start_mark
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; refuse a key that appears twice."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                name = self.construct_object(key, deep=True)
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {name!r} appears twice", key.start_mark
                    )
                seen.add(name)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


BoundedLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
BoundedLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
