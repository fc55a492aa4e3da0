"""Which lines and branches of the kernels the proof of an operator reaches, counted by gcov in the simulator.

``python -m tests.cuda.coverage OPERATOR FOLDER`` proves an operator with kernels that count, and leaves the counts in
the folder; :func:`missed` reads them. The code is not optimised, so that every instance of a template is counted by
itself, and every condition has its own branches.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import companion
from companion.cuda.launch import Kernels
from companion.operators import operators
from companion.proofs import trial, verdicts
from companion.simulator import build, module

PACKAGE = Path(companion.__file__).parent


def prove(name: str, folder: Path) -> str:
    """What is wrong with an operator; its kernels count in this process, until it ends."""

    def counting(
        source: Path, kernels: Sequence[str], include: Sequence[Path], sanitize: bool
    ) -> tuple[Path, tuple[Path, ...]]:
        del sanitize
        return compiled(source, kernels, include, folder), build._closure(source, include)

    module.build = counting  # type: ignore[assignment]
    (operator,) = (operator for operator in operators() if operator.name == name)
    return trial.first_fault(operator, trial.exercise_of(operator.exercise), verdicts.SIMULATOR)


def compiled(source: Path, kernels: Sequence[str], include: Sequence[Path], folder: Path) -> Path:
    """The library of a source, with counters in the lines of the package."""
    tools = build._toolchain()
    main = folder / f"{source.stem}.cpp"
    main.write_text(build._main_file(source, kernels, build._dynamic_shared_names(build._closure(source, include))))
    where = [f"-I{build.RUNTIME}", *(f"-isystem{path}" for path in tools.headers), *(f"-I{path}" for path in include)]
    counted = ["--coverage", "-fprofile-update=atomic", f"-fprofile-filter-files={re.escape(str(PACKAGE))}/.*[.]cuh?$"]
    compile_ = [tools.compiler, *build._COMMON_FLAGS, *where]
    objects = [str(folder / f"{source.stem}.o"), str(folder / "scheduler.o")]
    build._compile([*compile_, "-O0", *counted, "-c", str(main), "-o", objects[0]], source.name)
    if not Path(objects[1]).exists():
        build._compile([*compile_, "-O2", "-c", str(build.RUNTIME / "scheduler.cpp"), "-o", objects[1]], "scheduler")
    library = folder / f"{source.stem}.so"
    build._compile([tools.compiler, "-shared", "--coverage", *objects, "-o", str(library), "-pthread"], source.name)
    return library


class Unreachable(NamedTuple):
    """Code that no tensor leads to: in which functions, its text, and why."""

    function: str
    text: str
    why: str


BLOCKS = r"(forward|backward)_row<.*BlockGroup>"
A_BLOCK_A_ROW = "there is a row for every block"


class Missed(NamedTuple):
    """Code that was not reached in an instance of a function."""

    file: str
    line: int
    text: str
    function: str
    what: str  # "line", or "branch 2 of 2"


def missed(kernels: Kernels, folder: Path) -> list[Missed]:
    """What the proof has not reached in a source and the headers that it includes."""
    command = [tool(), "--json-format", "--branch-probabilities", "--demangled-names", "--stdout"]
    result = subprocess.run(
        [*command, f"{kernels.source.stem}.o"], cwd=folder, capture_output=True, text=True, check=True
    )
    return [found for file in json.loads(result.stdout)["files"] for found in _missed_in(file)]


def tool() -> str:
    """gcov, of the compiler's own version."""
    compiler = Path(build._toolchain().compiler).resolve()
    return shutil.which(compiler.name.replace("g++", "gcov")) or "gcov"


def _missed_in(file: dict[str, Any]) -> Iterator[Missed]:
    path = Path(file["file"])
    if PACKAGE not in path.parents:
        return
    text = path.read_text().splitlines()
    names = {function["name"]: function["demangled_name"] for function in file["functions"]}
    # a line is there once for each instance of its function
    counts: dict[tuple[int, str], int] = defaultdict(int)
    for line in file["lines"]:
        counts[line["line_number"], line.get("function_name", "")] += line["count"]
    for line in file["lines"]:
        number, function = line["line_number"], line.get("function_name", "")
        where = path.name, number, text[number - 1].strip(), names.get(function, function)
        if line["count"] == 0:
            yield Missed(*where, "line")
            continue
        for place, branch in enumerate(line["branches"], start=1):
            if branch["count"] == 0 and not branch["throw"]:
                yield Missed(*where, f"branch {place} of {len(line['branches'])}")


if __name__ == "__main__":
    print(prove(sys.argv[1], Path(sys.argv[2])))
