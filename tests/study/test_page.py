"""Numbers that cells give to the prose, and pieces of kernels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import IPython
import numpy as np
import pytest
import torch

import companion
from companion.study import page
from tests.cases import together

PACKAGE = Path(companion.__file__).parent
SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.cu*"))


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """What was displayed, and with what."""
    seen: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(IPython.display, "display", lambda data, **options: seen.append((data, options)))
    return seen


def test_what_is_glued_is_an_output_that_myst_nb_finds_and_nobody_sees(displayed: list[Any]) -> None:
    from myst_nb.core.variables import format_plain_text
    from myst_nb.ext.glue import extract_glue_data_cell
    from nbformat.v4 import new_code_cell, new_output

    page.glue(seeds=5, gain=0.125, found="0.50", tensor=torch.tensor(3), array=np.float64(2.5))
    cell = new_code_cell()
    for data, options in displayed:
        assert options["raw"]
        cell.outputs.append(new_output("display_data", data=data, metadata=options["metadata"]))
    found = {name: output["data"]["text/plain"] for name, output in extract_glue_data_cell(cell)}
    assert cell.outputs == []
    assert {name: format_plain_text(text, "s") for name, text in found.items()} == {
        "seeds": "5",
        "gain": "0.125",
        "found": "0.50",
        "tensor": "3",
        "array": "2.5",
    }
    assert format_plain_text(found["gain"], ".1f") == "0.1"


@pytest.mark.parametrize("value", [None, [1], True, torch.tensor(True), 1j])
def test_only_text_and_numbers_are_glued(displayed: list[Any], value: object) -> None:
    with pytest.raises(TypeError, match=r"answer: got .*, allowed is text or a number"):
        page.glue(answer=value)
    assert displayed == []


def test_a_function_is_shown_with_the_comment_above_it() -> None:
    source = page.cuda("dnrt/raa.cu", "direct")
    lines = source.text.splitlines()
    assert lines[0] == "// g s + h, and h"
    assert lines[-1] == "}"
    assert "fmaf(g, s, h)" in lines[-2]
    assert source._repr_markdown_() == f"```cpp\n{source!r}\n```"


def test_all_functions_of_a_name_are_shown() -> None:
    assert page.cuda("cuda/rows.cuh", "warp_sum").text.count(" warp_sum(") == 2


@pytest.mark.parametrize(
    ("path", "name", "first", "last"),
    [
        ("dnrt/raa.cu", "raa_reduce", "// dL/dw and, after it, dL/db, from what the blocks left", "}"),
        ("dnrt/raa.cu", "MapPlace", "// The vectors of a thread: `width` neighbours.", "};"),
        ("dnrt/raa.cu", "COMPANION_LANES", "#define COMPANION_LANES(layout, packs, suffix, T)", "    }"),
        ("dnrt/raa.cu", "opening", "// RAA, forward and backward: every element times a gate", "// backward. Phi"),
        ("dnrt/raa.cu", "maps", "// --- maps: x is (outer, channels, inner)", "}"),
        ("cuda/gates.cuh", "Normal", "template <typename T>", "};"),
        ("cuda/gates.cuh", None, "// ", "}  // namespace companion"),
    ],
)
def test_a_piece_begins_and_ends_where_it_should(path: str, name: str | None, first: str, last: str) -> None:
    lines = page.cuda(path, name).text.splitlines()
    assert lines[0].startswith(first)
    assert lines[-1].startswith(last)


@together("path", SOURCES)
def test_every_function_of_a_source_can_be_shown(path: str) -> None:
    text = (PACKAGE / path).read_text(encoding="utf-8")
    pieces = page._pieces(text)
    assert pieces
    for name in re.findall(r"__forceinline__ [\w:<>&, ]*?(\w+)\(", re.sub(r"(?m)^ .*", "", text)):
        assert name in pieces
    for name, parts in pieces.items():
        for part in parts:
            assert part in text, name
            if name not in ("opening",) and not part.startswith(("// ---", "#define")):
                code = re.sub(r"//.*", "", part)
                assert code.count("{") == code.count("}") > 0, name


def test_what_there_is_is_said_to_whoever_asks_for_something_else() -> None:
    with pytest.raises(ValueError, match=r"name: got 'backwards', allowed in dnrt/raa.cu are opening, rows, .*direct"):
        page.cuda("dnrt/raa.cu", "backwards")
    with pytest.raises(ValueError, match=r"path: got 'raa.cu', allowed are .*dnrt/raa.cu"):
        page.cuda("raa.cu")


# --- what functions call ---


def test_what_is_called_is_followed_through_headers_and_what_the_page_shows_is_left_out() -> None:
    text = page.called("dnrt/raa.cu", "forward_row", "Normal").text
    for name in ("weighted_sum", "load_weights", "for_each_part_at", "stay_packed", "to_float", "store_pack"):
        assert re.search(rf"__device__[^;{{}}]*\b{name}\(", text), name
    assert re.search(r"struct (Spread|LaneGroup|BlockGroup)", text)  # group.total: whoever has such a member
    assert "forward_row(" not in text
    assert "struct Normal" not in text
    assert "backward_row" not in text
    assert re.findall(r"^// --- (.*) ---$", text, re.MULTILINE)[0] == "dnrt/raa.cu"


def test_what_calls_nothing_shows_nothing_and_an_unknown_name_is_refused() -> None:
    assert page.called("dnrt/arr.cu", "pulled").text == ""
    with pytest.raises(ValueError, match=r"names: got 'backwards', allowed in dnrt/raa.cu are .*forward_row"):
        page.called("dnrt/raa.cu", "backwards")
