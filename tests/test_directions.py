"""The library never imports the study, and nothing imports upwards, in a circle, or from another mechanism's room."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import companion
from companion.rooms import CHAPTERS, ROOMS
from tests.cases import together

PACKAGE = Path(companion.__file__).parent

#: From the bottom to the top. A name stands for a module, or for a package with all that is in it and not named itself.
#: A module imports what is below it or on its own level.
LEVELS = (
    ("activations", "arguments", "extras", "files", "rooms", "weight_decay"),
    ("simulator",),
    ("cuda",),
    ("operators",),
    ("baselines", "counting", "neurons", "proofs", "rehearsal", "surgery"),
    ROOMS,
    ("functional", "rethinking", "", "doctor", "study"),  # "" is the package itself
    (*(f"{room}.study" for room in ROOMS), *(f"study.{chapter}" for chapter in CHAPTERS), "__main__"),
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


def of_the_study(module: str) -> bool:
    """Whether a module is behind the second door, or opens both."""
    return "study" in module.split(".") or module == "__main__"


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
    """The imports of a module that go upwards, to the study from outside it, or to another room."""
    own = listed(module)
    other_rooms = set(ROOMS) - {own.split(".")[0]} if own.split(".")[0] in ROOMS else set()
    return [
        f"{module} imports {imported}"
        for imported in sorted(imports(text))
        if LEVEL[listed(imported)] > LEVEL[own]
        or (of_the_study(imported) and not of_the_study(module))
        or imported.split(".")[0] in other_rooms
    ]


def test_every_module_has_a_level() -> None:
    assert [module for module in MODULES if listed(module) not in LEVEL] == []
    assert [name for name in LEVEL if name not in MODULES] == []
    assert len(LEVELS) <= 8


@together("module", MODULES)
def test_a_module_imports_only_what_it_may(module: str) -> None:
    assert faults(module, MODULES[module].read_text(encoding="utf-8")) == []


def test_nothing_imports_in_a_circle() -> None:
    graph = {module: imports(path.read_text(encoding="utf-8")) - {module} for module, path in MODULES.items()}
    TopologicalSorter(graph).prepare()
    graph["files"] = {"cuda.build"}
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


@together("module", [module for module in MODULES if not of_the_study(module)])
def test_the_library_downloads_nothing(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & {"http", "urllib", "zipfile", "requests"}


@pytest.mark.parametrize(
    ("module", "planted", "fault"),
    [
        ("dac.op", "from companion.functional import apa", "dac.op imports functional"),
        ("dac.op", "from companion.apa.op import apa", "dac.op imports apa.op"),
        ("dac.op", "import companion.apa", "dac.op imports apa"),
        ("dac.op", "def f():\n    from companion import doctor", "dac.op imports doctor"),
        ("dac.op", "from companion import count", "dac.op imports "),
        (
            "dac.study.formulas",
            "from companion.apa.study import formulas",
            "dac.study.formulas imports apa.study.formulas",
        ),
        ("doctor", "from companion.study import results", "doctor imports study.results"),
        ("baselines", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import companion.dac", "imports dac"),
        ("simulator.build", "from companion.cuda import build", "simulator.build imports cuda.build"),
        ("operators.choice", "from companion.proofs import verdicts", "operators.choice imports proofs.verdicts"),
    ],
)
def test_an_import_that_may_not_be_is_found(module: str, planted: str, fault: str) -> None:
    text = MODULES[module].read_text(encoding="utf-8")
    (found,) = faults(module, f"{text}\n{planted}\n")
    assert fault in found


@pytest.mark.parametrize("module", ["dac.op", "counting"])
def test_what_lies_below_may_be_imported(module: str) -> None:
    assert faults(module, "from companion import operators, files\nfrom companion.cuda.launch import Kernels") == []
