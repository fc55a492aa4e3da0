"""Nothing imports upwards, and no room imports another: the package is a floor, rooms on it, and what uses many."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import companion
from companion.rooms import ROOMS
from tests.together import together

PACKAGE = Path(companion.__file__).parent

#: From the bottom to the top. A name stands for a module, or for a package with all that is in it and not named itself.
#: A module imports what is below it or on its own level; of a room, only what is below it and the room itself.
LEVELS = (
    ("rooms", "files", "extras"),
    ("symbolic", "activations", "vocabulary"),
    ("simulator",),
    ("cuda",),
    ("cuda.proof",),
    ("operator",),
    ("cuda.exercise",),
    ("analysis", "corruptions", "datasets", "exercises", "models", "page", "plotting", "rehearsal", "results"),
    ("gated", "ground"),
    ("baselines", "claims", "counting", "neurons", "surgery", "training"),
    ("experiments",),
    ("bench",),
    ROOMS,
    ("functional", "rethinking"),
    ("",),  # the package itself
    ("study",),
    ("doctor",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}


def module_of(path: Path) -> str:
    """The name of a file's module, without the package's own."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def listed(module: str) -> str:
    """The name under which the table has a module."""
    while module not in LEVEL and "." in module:
        module = module.rpartition(".")[0]
    return module


def imports(text: str) -> set[str]:
    """The package's modules that a source imports, wherever in it, for running or only for types."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # of a package a module is imported, or a name that stands in the package itself
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name.removeprefix("companion.") in MODULES else str(node.module) for name in named}
    return {name.partition("companion")[2].removeprefix(".") for name in found if name.split(".")[0] == "companion"}


def faults(module: str, text: str) -> list[str]:
    """The imports of a module that go upwards, or to another room."""
    own = listed(module)
    return [
        f"{module} imports {imported}"
        for imported in sorted(imports(text))
        if LEVEL[listed(imported)] > LEVEL[own] or (own in ROOMS and listed(imported) in set(ROOMS) - {own})
    ]


def test_every_module_has_a_level() -> None:
    assert [module for module in MODULES if listed(module) not in LEVEL] == []
    assert [name for name in LEVEL if name not in MODULES] == []


@together("module", MODULES)
def test_a_module_imports_only_from_below(module: str) -> None:
    assert faults(module, MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "planted", "fault"),
    [
        ("dac.op", "from companion.functional import apa", "dac.op imports functional"),
        ("dac.op", "from companion.apa.op import apa", "dac.op imports apa.op"),
        ("dac.op", "import companion.apa", "dac.op imports apa"),
        ("dac.op", "def f():\n    from companion import doctor", "dac.op imports doctor"),
        ("dac.op", "from companion import count", "dac.op imports "),
        ("baselines", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import companion.dac", "imports dac"),
        ("simulator.build", "from companion.cuda import build", "simulator.build imports cuda.build"),
        ("cuda.proof", "from companion.operator import backend", "cuda.proof imports operator"),
    ],
)
def test_an_import_upwards_or_of_another_room_is_found(module: str, planted: str, fault: str) -> None:
    text = MODULES[module].read_text(encoding="utf-8")
    (found,) = faults(module, f"{text}\n{planted}\n")
    assert fault in found


@pytest.mark.parametrize("module", ["dac.op", "counting"])
def test_what_lies_below_may_be_imported(module: str) -> None:
    assert faults(module, "from companion import operator, files\nfrom companion.cuda.launch import Kernels") == []
