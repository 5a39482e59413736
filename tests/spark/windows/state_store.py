"""A handle to a state store in memory, with the Spark calls that a window join makes."""

from __future__ import annotations

from typing import Any


class _Value:
    def __init__(self, values: dict[str, Any], name: str) -> None:
        self._values, self._name = values, name

    def get(self) -> Any:
        return self._values.get(self._name)

    def update(self, value: Any) -> None:
        self._values[self._name] = value


class _Map:
    def __init__(self, values: dict[str, Any], name: str) -> None:
        self._values = values.setdefault(name, {})

    def getValue(self, key: Any) -> Any:  # noqa: N802 (Spark's name)
        return self._values.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self._values[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        del self._values[key]

    def clear(self) -> None:
        self._values.clear()


class StateStore:
    """The state of one key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def getValueState(self, name: str, _: Any) -> _Value:  # noqa: N802
        return _Value(self.values, name)

    def getMapState(self, name: str, *_: Any) -> _Map:  # noqa: N802
        return _Map(self.values, name)
