"""Read pipeline files: YAML with `${VARIABLES}` for secrets, and errors that suggest the nearest valid setting."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from semistream.errors import PipelineError, forms_of, hide, shortened
from semistream.pipelines.spec.bounded_yaml import MOST_BYTES, TooLarge, load
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.source_spec import SourceSpec
from semistream.pipelines.spec.yaml_lines import Lines, syntax_error
from semistream.storage.local_paths import local_path

_KIND = re.compile(r"|str|int|float|bool|tuple\[.*|dict\[.*|\[key\]")  # parts of pydantic's locations, not in a file
_MOST_LINES, _MOST_SHOWN = 20, 1500  # lines of an error, and characters of a line
_LEAST_PART = 8  # characters of a secret that no message may show
_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)\}")


def read_spec(path: Path | str, environment: Mapping[str, str] = os.environ) -> PipelineSpec:
    """Read the pipeline of a file, and resolve its relative paths against the file's folder.

    ``${NAME}`` in a value is replaced by the environment variable, which keeps secrets out of the file; ``$${`` stands
    for a literal ``${``. Only ``true`` and ``false`` are booleans (YAML 1.2), so the key ``on`` stays a string.
    """
    file = local_path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise PipelineError(f"{file} cannot be read: {error.strerror}. Give a pipeline's YAML file.") from error
    except UnicodeDecodeError as error:
        raise PipelineError(f"{file} is not UTF-8 text ({error.reason}). Give a pipeline's YAML file.") from error
    if len(content) > MOST_BYTES:
        raise PipelineError(f"{file} has more than {MOST_BYTES:,} bytes. Give a pipeline's YAML file.")
    try:
        raw = load(text)
    except TooLarge as error:
        raise PipelineError(f"{file} is too large for a pipeline: {syntax_error(error)}") from error
    except yaml.YAMLError as error:
        raise PipelineError(f"{file} is not YAML: {syntax_error(error)}") from error
    variables: dict[str, str] = {}
    settings = _with_variables(raw, environment, str(file), text, variables)
    for name, value in variables.items():
        hide(value, f"${{{name}}}")
    return make_spec(
        settings, where=str(file), folder=file.absolute().parent, text=text, shown=partial(_masked, variables)
    )


def _short(line: str) -> str:
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}... ({len(line):,} characters)"


def _masked(variables: Mapping[str, str], line: str) -> str:
    """Return a line of an error with the names of variables in place of their values, also of short ones."""
    for name, value in sorted(variables.items(), key=lambda each: -len(each[1])):
        forms = [rf"(?<!\w){re.escape(form)}(?!\w)" if len(form) < _LEAST_PART else re.escape(form)
                 for form in sorted(forms_of(value), key=len, reverse=True) if form]  # fmt: skip
        line = re.sub("|".join(forms), f"${{{name}}}", line) if forms else line
    for name, value in variables.items():
        parts = (value[at : at + _LEAST_PART] for at in range(len(value) - _LEAST_PART + 1))
        if any(part in line for part in parts):
            return f"{line.partition(': ')[0]}: is not valid, and its message would show a part of ${{{name}}}"
    return line


def make_spec(
    content: Any,
    *,
    where: str = "the pipeline",
    folder: Path | None = None,
    text: str | None = None,
    shown: Callable[[str], str] = str,
) -> PipelineSpec:
    """Build the pipeline of nested mappings; a single error lists every invalid setting.

    Relative paths are resolved against ``folder``, if given. Errors name the lines in ``text``, if given; ``shown``
    returns a line of an error as it may be shown.
    """
    if not isinstance(content, Mapping):
        raise PipelineError(f"{where} has no settings; a pipeline has {', '.join(_names(PipelineSpec))}.")
    try:
        spec = PipelineSpec.model_validate(content)
        return spec if folder is None else spec.below(folder)
    except ValidationError as error:
        lines = [f"  {_short(shown(line))}" for line in _lines(error.errors(include_url=False), text)]
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES:] = [f"  and {len(lines) - _MOST_LINES:,} more"]
        raise PipelineError("\n".join([f"{where} is not a valid pipeline:", *lines])) from None
    except (RecursionError, OverflowError) as error:
        raise PipelineError(f"{where} is not a valid pipeline: {shown(str(error))}. Write plain values.") from None


def _lines(errors: Sequence[ErrorDetails], text: str | None) -> list[str]:
    """Return one line for each invalid setting.

    A value that fits none of several types has one error for each type; they are merged into one line. A list that is
    too short only because its items are invalid is not reported.
    """
    listed: dict[str, list[str]] = {}
    around = {each["loc"][:n] for each in errors for n in range(len(each["loc"]))}
    lines = None if text is None else Lines(text)
    for each in errors:
        if each["type"] == "too_short" and each["loc"] in around:
            continue
        messages = listed.setdefault(_place(each["loc"], lines if len(listed) < _MOST_LINES else None), [])
        if (message := _message(each)) not in messages and len(messages) < _MOST_LINES:
            messages.append(message)
    return [f"{place}: {', or '.join(messages)}" for place, messages in listed.items()]


def _message(error: ErrorDetails) -> str:
    """Describe the error of a setting; for an unknown name or value, suggest the nearest valid one."""
    if error["type"] == "extra_forbidden":
        known = _names(_model_at(error["loc"][:-1]))
        return f"unknown setting; valid settings are {', '.join(known)}.{_nearest(error['loc'][-1], known)}"
    if error["type"] == "missing":
        return "is missing"
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        known = [tag for model in _models_of(SourceSpec) for tag in _tags(model)]
        given = error["input"].get("format") if isinstance(error["input"], Mapping) else error["input"]
        return f"`format` must be one of {', '.join(known)} (given: {shortened(given)}).{_nearest(given, known)}"
    message = error["msg"].removeprefix("Value error, ")
    given = error["input"]
    shown = (
        "" if isinstance(given, Mapping | Sequence) and not isinstance(given, str) else f" (given: {shortened(given)})"
    )
    known = re.findall(r"'([^']*)'", message) if error["type"] == "literal_error" else []
    return f"{message}{shown}{_nearest(given, known)}"


def _nearest(wrong: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(wrong[:100], known, n=1) if isinstance(wrong, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def _place(location: tuple[int | str, ...], lines: Lines | None) -> str:
    """Return the name of a setting as in the file, with its line."""
    parts = [part for part, _ in _walk(location) if isinstance(part, int) or not _KIND.fullmatch(part)]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:100]}" for part in parts).removeprefix(".")
    line = None if lines is None else lines.of(parts)
    return (place or "the pipeline") if line is None else f"line {line}, {place}"


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the model of the spec at a location of the file."""
    model: type[BaseModel] = PipelineSpec
    for _, reached in _walk(location):
        model = reached
    return model


def _walk(location: tuple[int | str, ...]) -> Iterator[tuple[int | str, type[BaseModel]]]:
    """Yield each part of a location and the model there.

    A part that only names the kind of source is not in the file, and is yielded as an empty string.
    """
    model: type[BaseModel] = PipelineSpec
    choices: list[type[BaseModel]] = []
    for part in location:
        tagged = next((each for each in choices if part in _tags(each)), None)
        if tagged is not None:
            model, choices = tagged, []
            yield "", model
            continue
        if isinstance(part, str):
            fields = {field.alias or name: field for name, field in model.model_fields.items()}
            choices = _models_of(fields[part].annotation) if part in fields else []
            model = choices[0] if choices else model
        yield part, model


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    """Return the values of ``format`` that select a kind of source."""
    field = model.model_fields.get("format")
    return () if field is None else get_args(field.annotation)


def _models_of(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models_of(each)]


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _with_variables(value: Any, environment: Mapping[str, str], where: str, text: str, used: dict[str, str]) -> Any:
    """Return a value with its variables replaced; those ``used`` are noted there."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found, environment, where, text, used), value)
    if isinstance(value, Mapping):
        return {name: _with_variables(each, environment, where, text, used) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_variables(each, environment, where, text, used) for each in value]
    return value


def _variable(found: re.Match[str], environment: Mapping[str, str], where: str, text: str, used: dict[str, str]) -> str:
    escaped, name = found[1], found[2]
    if escaped:
        return found[0][1:]
    if name not in environment:
        line = text.partition(found[0])[0].count("\n") + 1
        raise PipelineError(
            f"{where} uses ${{{name}}}, but the environment has no {name}. Set it, or write $${{ for a literal '${{' "
            f"in line {line}."
        )
    used[name] = environment[name]
    return environment[name]
