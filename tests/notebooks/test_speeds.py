"""What pages say of speeds: words come from promoted benchmarks, and stand beside the compiled published formula."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from book._tools.places import BOOK
from companion.study import speed

#: A word that a page may not type beside a time of ours: which is the faster, only the numbers say.
JUDGING = re.compile(r"\b(faster|slower|quicker|as fast|speed-?up)\b|\btimes as (long|fast)\b", re.IGNORECASE)
#: Where one of these words is about something that the page does not measure.
ELSEWHERE = (
    "nothing in computing is faster",
    "take the published formula",
    "times as long as with SiLU",  # between glued numbers
    "wherever it is the faster of the two",
    "operator that is faster than the published one, also eager, in {glue:text}`shorter` of",
    "times as long as the formula as on paper",
    "times as long as that layer eager",
    "times as long as a usual layer eager",
    "times as long as the published formula eager",
    "times as long as the package compiled",
    "times as long as Eq. 13 operation by operation",
)


def readers() -> list[Path]:
    """The pages that read a benchmark."""
    return [path for path in sorted(BOOK.glob("*/*.ipynb")) if re.search(r"speed\.load\(|bench-", code(path))]


def code(path: Path) -> str:
    return "\n\n".join(_cells(path, "code"))


def prose(path: Path) -> str:
    return "\n\n".join(_cells(path, "markdown"))


def _cells(path: Path, kind: str) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def test_first_pages_and_pages_on_kernels_read_benchmarks() -> None:
    assert len([path for path in readers() if path.parent.name == "mechanisms"]) >= 8


@pytest.mark.parametrize("path", readers(), ids=lambda path: path.stem)
def test_a_page_reads_benchmarks_where_a_disturbed_one_is_refused(path: Path) -> None:
    assert "bench-" not in code(path).replace('glob("bench-*.json")', "").replace('removeprefix("bench-")', "")


@pytest.mark.parametrize("path", readers(), ids=lambda path: path.stem)
def test_who_is_faster_is_said_by_a_cell(path: Path) -> None:
    text = prose(path)
    for harmless in ELSEWHERE:
        text = text.replace(harmless, "")
    about_times = [
        part for part in re.split(r"(?<=[.!?:;])\s", text) if re.search(r"compile|eager|\bGELU\b|\btimed\b", part)
    ]
    assert [part for part in about_times if JUDGING.search(part)] == []


@pytest.mark.parametrize(
    "path", [path for path in readers() if "five-lines" in prose(path)], ids=lambda path: path.stem
)
def test_the_cost_in_a_box_is_beside_the_compiled_published_formula(path: Path) -> None:
    (cost,) = re.findall(r"^- \*\*What it costs\.\*\* (.*)$", prose(path), re.MULTILINE)
    assert "Compiled, " in cost
    assert "{glue:text}`speed`" in cost
    assert "{glue:text}`cost_machine`" in cost
    assert re.search(r"\bspeed=\w+\.(beside|compiled)\(", code(path))
    for sentence in re.split(r"(?<=[.;])\s", cost):
        if re.search(r"\bstep\b|MiB", sentence):  # beside a network's step or memory: how it ran, and in which dtype
            assert re.search(r"\beager\b.*\bfp32\b", sentence, re.IGNORECASE)


def test_what_a_cell_says_names_both_dtypes_and_both_ways_to_run() -> None:
    rows = [
        {"dtype": dtype, "size": "1", "competitor": who, "forward_backward_ms": 1.0}
        for dtype in speed.DTYPES
        for who in ("companion", "published", "companion, compiled", speed.PUBLISHED)
    ]
    said = speed.Speeds("toy", {"rows": rows}).beside()
    assert all(word in said for word in ("fp32", "bf16", "published formula compiled", "eager"))
