"""The guide to the source covers every folder, names files that exist, and the tree keeps its shape."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "semistream"
GUIDE = (SOURCE / "README.md").read_text()
SECTIONS = dict(re.findall(r"^#{3,4} `(.+?)/?`\n(.*?)(?=^#|\Z)", GUIDE, re.MULTILINE | re.DOTALL))
FOLDERS = sorted({str(file.parent.relative_to(SOURCE)) for file in SOURCE.rglob("__init__.py")})

MOST_ENTRIES = 16
MOST_LINES = 400
ROLES = {"__init__", "base", "command", "cost_model", "explain", "kernels", "memory", "operator", "plot", "report"}
"""Names that mean the same in every folder."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_a_paragraph_that_names_files_it_has(folder: str) -> None:
    assert folder in SECTIONS, f"src/semistream/README.md has no section for {folder}/"
    text = SECTIONS[folder].strip()
    assert len(text.split()) >= 8
    for name in re.findall(r"`([\w/]+\.(?:py|yaml))`", text):
        assert (SOURCE / folder / name).is_file(), f"{folder}/ has no {name}"


def test_no_section_is_about_a_folder_that_is_gone() -> None:
    assert sorted(SECTIONS) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_has_more_entries_than_an_eye_takes_in(folder: str) -> None:
    entries = [
        each.name
        for each in (SOURCE / folder).iterdir()
        if (each.suffix == ".py" or (each / "__init__.py").exists()) and each.name not in ("__init__.py", "__main__.py")
    ]
    assert len(entries) <= MOST_ENTRIES, f"{folder}/ has {len(entries)} entries: {sorted(entries)}"


def test_no_file_is_longer_than_can_be_read_at_a_sitting() -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in SOURCE.rglob("*.py")}
    assert not {str(file): lines for file, lines in lengths.items() if lines > MOST_LINES}


def test_a_name_stands_for_one_thing() -> None:
    places = defaultdict(list)
    for file in SOURCE.rglob("*.py"):  # but a command of the CLI is called after what it does
        if file.stem not in ROLES and file.parent != SOURCE / "cli":
            places[file.stem].append(str(file.relative_to(SOURCE)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_the_layers_are_those_that_are_enforced() -> None:
    contract = (SOURCE.parents[1] / "pyproject.toml").read_text()
    (layers,) = re.findall(r'type = "layers"\nlayers = \[\n(.*?)\n\]', contract, re.DOTALL)
    enforced = [line.replace("semistream.", "").split(" | ") for line in re.findall(r'"(.+?)"', layers)]
    (drawn,) = re.findall(r"flowchart TD\n(.*?)```", GUIDE, re.DOTALL)
    chains = [[step.strip().split(" & ") for step in line.split("-->")] for line in drawn.splitlines() if line.strip()]
    found = [(upper, lower) for chain in chains for upper, lower in pairwise(chain)]
    assert [(sorted(a), sorted(b)) for a, b in found] == [(sorted(a), sorted(b)) for a, b in pairwise(enforced)]


def test_the_architecture_covers_every_room_every_paper_and_tests_that_exist() -> None:
    root = SOURCE.parents[1]
    text = (root / "docs" / "architecture.md").read_text()
    rooms = {folder for folder in FOLDERS if "/" not in folder and folder != "."}
    assert not {room for room in rooms if f"`{room}/`" not in text}
    references = text.partition("## References")[2]
    assert re.findall(r"^\| ([A-Z]+) \|", references, re.MULTILINE) == ["MESH", "SSIJ", "FRONT", "HYBRID", "WINDOW"]
    for file, test in re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", text):
        assert (root / file).exists(), file
        assert not test or f"def {test}(" in (root / file).read_text(), test
