"""Outputs are compared within what processors may differ by, and every larger difference is found."""

import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from book._tools.outputs import PIXELS, Tolerance, same
from book._tools.places import BOOK, ROOT
from companion.study import plotting


@pytest.mark.parametrize(
    ("new", "committed", "tags"),
    [
        ("loss 0.123\n", "loss 0.123\n", []),
        ("loss 0.124\n", "loss 0.123\n", ["tolerance=0.001"]),
        ("loss −1.30e-05\n", "loss −1.00e-05\n", ["hide-input", "tolerance=30%"]),
        ("| relu |   9.9 |\n", "| relu |  10.0 |\n", ["tolerance=0.1"]),
        ("loss  -0.00 of 3\n", "loss 0.00 of 3\n", []),
    ],
)
def test_what_may_differ_passes(new, committed, tags):
    assert same(new, committed, Tolerance.of(tags))


@pytest.mark.parametrize(
    ("new", "committed", "tags"),
    [
        ("loss 0.126", "loss 0.123", ["tolerance=0.001"]),
        ("loss 1.90e-05", "loss 1.00e-05", ["tolerance=30%"]),
        ("loss 0.124", "loss 0.123", []),
        ("7 of 64 rows", "6 of 64 rows", ["tolerance=5"]),
        ("7 of 64 rows", "7.0 of 64 rows", ["tolerance=0"]),
        ("wins: 1.0", "loses: 1.0", ["tolerance=1"]),
        ("f32: 1.0", "f16: 1.0", ["tolerance=50"]),
        ("torch 2.15.0", "torch 2.14.0", ["tolerance=50"]),
        ("1.0\n", "1.0\n2.0\n", ["tolerance=5"]),
        ("1.0 nan", "1.0 2.0", ["tolerance=5"]),
        ("1.0\n", "1.0 ", []),
    ],
)
def test_what_must_not_differ_is_found(new, committed, tags):
    assert not same(new, committed, Tolerance.of(tags))


@pytest.mark.parametrize("tags", [["tolerance"], ["tolerance=-1"], ["tolerance=1", "tolerance=2"], ["tolerance=0.1 %"]])
def test_a_tolerance_that_says_nothing_is_an_error(tags):
    with pytest.raises(ValueError, match="tags: got"):
        Tolerance.of(tags)


def _figure(draw, size=(4, 3), alt="A."):
    figure, axes = plotting.subplots(figsize=size)
    draw(axes)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    return plotting.picture(figure, alt=alt).html


def _bend(by=0.0, points=100):
    x = [k / points for k in range(points + 1)]
    return lambda axes: axes.plot(x, [0.2 + 0.5 * t * t + by for t in x])


def _unit_of_a_pixel():
    """What one pixel is on the vertical axis of `_figure`."""
    low, high = (_figure(lambda axes, y=y: axes.plot([0, 1], [y, y])) for y in (0.0, 1.0))
    heights = [
        float(re.search(r'd="M [\d.]+ ([\d.]+) \nL [\d.]+ \1 \n" clip-path[^>]*stroke: #0077bb', svg)[1])
        for svg in (low, high)
    ]
    return 3 / 4 / (heights[0] - heights[1])


def test_curves_are_compared_as_curves():
    assert same(_figure(_bend(points=100)), _figure(_bend(points=331)), Tolerance())


def test_a_curve_may_move_by_half_a_pixel_and_no_more():
    pixel, committed = _unit_of_a_pixel(), _figure(_bend())
    assert same(_figure(_bend(0.9 * PIXELS * pixel)), committed, Tolerance())
    assert not same(_figure(_bend(1.2 * PIXELS * pixel)), committed, Tolerance())
    assert not same(_figure(_bend(2 * pixel)), committed, Tolerance(1000.0))


@pytest.mark.parametrize(
    "change",
    [
        lambda axes: axes.plot([0, 1], [0.4, 0.4]),
        lambda axes: axes.lines[0].set_color("red"),
        lambda axes: axes.lines[0].remove(),
        lambda axes: axes.set_title("Other"),
        lambda axes: axes.lines[0].set_markersize(9),
        lambda axes: axes.lines[0].set_xdata([0.1, 0.6, 0.9]),
    ],
)
def test_any_other_change_of_a_figure_is_found(change):
    def draw(axes):
        axes.plot([0.1, 0.5, 0.9], [0.1, 0.2, 0.5], "o-")
        axes.set_title("Title")

    def changed(axes):
        draw(axes)
        change(axes)

    assert not same(_figure(changed), _figure(draw), Tolerance(1000.0))


def test_an_end_that_is_missing_is_found():
    whole, half = (_figure(lambda axes, end=end: axes.plot([0, end], [0.5, 0.5])) for end in (1, 0.5))
    assert not same(whole, half, Tolerance())
    assert not same(half, whole, Tolerance())


# Source of a cell, its committed output, its tags, whether nbval passes it.
CELLS = {
    "the same": ("print('a 1.0')", "a 1.0\n", [], True),
    "within": ("print('a  9.9')", "a 10.0\n", ["tolerance=0.1"], True),
    "three times": ("print('a 10.3')", "a 10.0\n", ["tolerance=0.1"], False),
    "a word": ("print('wins 1.0')", "loses 1.0\n", ["tolerance=0.1"], False),
    "a missing row": ("print('1.0')", "1.0\n2.0\n", ["tolerance=5"], False),
    "cleared": ("print('1.0')", None, [], False),
    "not executed": ("print('1.0')", ..., [], False),
    "a curve": ("show(0)", "show(0)", [], True),
    "a curve, moved": ("show(2 * pixel)", "show(0)", ["tolerance=5"], False),
    "a glued number": ("glue(share=0.5)", "glue(0.5)", [], True),
    "a stale glued number": ("glue(share=0.5)", "glue(0.6)", [], False),
    "a glued number, within": ("glue(share=0.5)", "glue(0.6)", ["tolerance=0.2"], True),
}
DRAW = """
from companion.study import plotting
from companion.study.page import glue
def show(by):
    figure, axes = plotting.subplots(figsize=(4, 3))
    axes.plot([0, 1], [0.2 + by, 0.7 + by])
    axes.set(xlim=(0, 1), ylim=(0, 1))
    plotting.show(figure, alt="A.")
pixel = {pixel}
"""


def test_nbval_finds_planted_faults_and_nothing_else(tmp_path):
    picture = _figure(lambda axes: axes.plot([0, 1], [0.2, 0.7]))
    cells = [new_code_cell(DRAW.format(pixel=_unit_of_a_pixel()), execution_count=1)]
    for source, committed, tags, _ in CELLS.values():
        cell = new_code_cell(source, execution_count=len(cells) + 1, metadata={"tags": tags})
        if committed == "show(0)":
            data = {"text/html": picture, "text/plain": "Figure: A."}
            cell.outputs = [new_output("display_data", data=data)]
        elif isinstance(committed, str) and committed.startswith("glue"):
            data = {"application/papermill.record/text/plain": committed[5:-1]}
            cell.outputs = [new_output("display_data", data=data)]
        elif isinstance(committed, str):
            cell.outputs = [new_output("stream", name="stdout", text=committed)]
        if committed is ...:
            cell.execution_count = None
        cells.append(cell)
    nbformat.write(new_notebook(cells=cells), tmp_path / "planted.ipynb")
    shutil.copy(BOOK / "conftest.py", tmp_path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "-v",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(tmp_path),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    verdicts = re.findall(r"Cell (\d+) (PASSED|FAILED|ERROR)", result.stdout)
    found = {int(number): verdict == "PASSED" for number, verdict in verdicts}
    assert found == {0: True} | {n: passes for n, (*_, passes) in enumerate(CELLS.values(), start=1)}, result.stdout
