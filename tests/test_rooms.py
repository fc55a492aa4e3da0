"""Every room is in the one list, and what names its public things by hand names all of them and nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
from pathlib import Path
from types import ModuleType

import companion
from companion import functional, rooms
from tests import lanes

PACKAGE = Path(companion.__file__).parent
ROOT = PACKAGE.parent


def functions(module: ModuleType) -> dict[str, object]:
    """The public functions of an operator: those that can be overridden, as PyTorch's own can."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and hasattr(value, "__wrapped__") and not name.startswith("_")
    }


def layers(module: ModuleType) -> dict[str, object]:
    """The modules that are not only there to be inherited from."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def test_a_folder_with_formulas_is_a_room_and_every_room_has_a_folder() -> None:
    assert sorted(rooms.ROOMS) == sorted(path.parent.parent.name for path in PACKAGE.glob("*/study/formulas.py"))


def test_modules_are_those_of_the_rooms_that_have_one() -> None:
    assert [*rooms.studies("formulas")] == [*rooms.ROOMS]
    assert set(rooms.studies("exercises")) >= {*rooms.ROOMS, "ground"}
    assert [*rooms.studies("constructions")] == ["dac"]
    assert rooms.modules("nothing") == rooms.studies("nothing") == {}
    for room, module in rooms.modules("op").items():
        assert module is importlib.import_module(f"companion.{room}.op")


def test_functional_names_the_public_functions_of_every_room_and_nothing_else() -> None:
    public = {name: value for module in rooms.modules("op").values() for name, value in functions(module).items()}
    assert functional.__all__ == sorted(public)
    assert {name: getattr(functional, name) for name in functional.__all__} == public
    assert imported("functional.py") == sorted(public)


def test_the_package_names_the_modules_of_every_room() -> None:
    public = {name: value for module in rooms.modules("layers").values() for name, value in layers(module).items()}
    assert {name: getattr(companion, name, None) for name in public} == public
    mine = {name for name in companion.__all__ if is_of_a_room(getattr(companion, name))}
    assert sorted(mine) == sorted(public)


def is_of_a_room(thing: object) -> bool:
    return inspect.isclass(thing) and thing.__module__.split(".")[1] in rooms.ROOMS


def imported(file: str) -> list[str]:
    """The names that a file of the package imports."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    return sorted(alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)


def test_every_room_is_tested_in_every_lane_that_tests_operators() -> None:
    operators = {f"tests/{room}/test_{what}.py" for room in rooms.modules("op") for what in ("op", "layers")}
    assert set(lanes.OPERATORS) == operators
    assert set(lanes.ACCURACY) == {f"tests/{room}/test_accuracy.py" for room in rooms.modules("op")}


#: Who names every mechanism by hand, outside of the rooms: nobody else may.
PLACES = {
    # where a sixth must be named
    *("companion/rooms.py", "companion/functional.py", "companion/__init__.py", "_toc.yml", "book/preface.md"),
    # what a person has to say of each: who it is compared with, pictures, pages on all of them
    *(f"companion/study/together/{name}.py" for name in ("neurons", "gpt", "pairs", "figures")),
    "book/_static/neuron.svg",
    *(f"book/appendix/{name}.ipynb" for name in ("api", "claims", "recipes")),
    "book/appendix/course.md",
    *(f"book/together/{name}.ipynb" for name in ("composing", "what-the-papers-got-wrong")),
    *(f"book/together/{name}.ipynb" for name in ("which-neuron", "under-noise")),
    # what tests know of each and no room says yet
    *(f"tests/test_{name}.py" for name in ("preface", "readme", "rethinking", "activations", "platforms")),
    "tests/notebooks/test_which_neuron.py",
    *(f"tests/study/together/test_{name}.py" for name in ("mlp", "pairs")),
}


def named(file: Path) -> set[str]:
    """The words of a file; of Python only those of its code, and what stands in strings that are no docstrings."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        tree = ast.parse(text)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        text = " ".join(
            f"{node.value}" if isinstance(node, ast.Constant) else f"{getattr(node, field)}"
            for node in ast.walk(tree)
            for field in ("value", "id", "attr", "name", "module")
            if isinstance(getattr(node, field, None), str) and id(node) not in docstrings
        )
    return set(re.findall(r"[\w-]+", text))


def test_who_names_every_mechanism_is_known() -> None:
    names = {room: {room, room.replace("_", "-"), rooms.title(room)} for room in rooms.ROOMS}
    for what in (functions, layers):
        for room, module in rooms.modules("op" if what is functions else "layers").items():
            names[room] |= {*what(module)}
    for room, module in rooms.modules("neuron").items():
        names[room] |= {neuron.name for neuron in module.NEURONS}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    own = tuple(f"{folder}/{room}/" for folder in ("companion", "tests", "tests/claims") for room in rooms.ROOMS)
    outside = [
        file
        for file in tracked
        if not file.startswith((*own, "data/", "book/mechanisms/"))
        and Path(file).suffix in (".py", ".md", ".yml", ".ipynb", ".bib", ".svg")
    ]
    found = {file for file in outside if all(words & named(ROOT / file) for words in names.values())}
    assert found == PLACES
