"""Whether two outputs of a cell say the same, although two processors computed them.

Processors differ in the last digits. So two outputs are compared like this:

- What is not a number must be equal, apart from spaces and tabs beside a number.
- A number with a decimal point or an exponent may differ by what the tag of its cell declares: ``tolerance=0.02``,
  or ``tolerance=5%`` of the committed number. Without a tag it may not differ. A whole number is a count and has no
  tolerance.
- In a figure the paths are compared as curves: no point of one is further than half a pixel from the other. Positions
  too may differ by half a pixel, everything else must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any
from xml.etree import ElementTree

import numpy as np

PIXELS = 0.5
"""How far a curve may move, in pixels of the page at its full width."""

_TAG = re.compile(r"tolerance=(?P<size>\d+(?:\.\d+)?(?:e-?\d+)?)(?P<percent>%?)")
_NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w]|\.\d)")
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_POSITIONS = ("x", "y", "transform")
# Finer than half a pixel by so much that the spacing of the points hardly counts.
_SPACING = 0.05
_ON_A_CURVE = np.linspace(0, 1, 17)[1:, None]


@dataclass(frozen=True)
class Tolerance:
    """How far a number of a cell may be from the committed one.

    Parameters
    ----------
    size
        The largest difference, or the largest quotient of difference and committed number.
    relative
        Which of the two.
    """

    size: float = 0.0
    relative: bool = False

    @classmethod
    def of(cls, tags: Iterable[str]) -> Tolerance:
        """The tolerance that the tags of a cell declare; none declared, none allowed.

        Raises
        ------
        ValueError
            If a tag begins with ``tolerance`` and does not say how large it is, or there are two.
        """
        declared = [tag for tag in tags if tag.startswith("tolerance")]
        if not declared:
            return cls()
        match = _TAG.fullmatch(declared[0])
        if match is None or len(declared) > 1:
            raise ValueError(f"tags: got {declared}, allowed is one such as tolerance=0.02 or tolerance=5%")
        return cls(float(match["size"]) / (100 if match["percent"] else 1), bool(match["percent"]))

    def allows(self, new: str, committed: str) -> bool:
        """Whether a number may take the place of the committed one."""
        if new == committed:
            return True
        if _form(new) != _form(committed):
            return False
        one, other = (float(text.replace("−", "-")) for text in (new, committed))
        is_count = _form(committed) == (None, False)
        allowed = 0.0 if is_count else self.size * (abs(other) if self.relative else 1.0)
        return abs(one - other) <= allowed * (1 + 1e-9)


def _form(number: str) -> tuple[int | None, bool]:
    """How many decimals a number is printed with, None for a whole one, and whether with an exponent."""
    mantissa, exponent, _ = re.sub("[eE]", "e", number).partition("e")
    _, point, decimals = mantissa.partition(".")
    return (len(decimals) if point else None, bool(exponent))


def same(new: str, committed: str, tolerance: Tolerance) -> bool:
    """Whether two texts, of any MIME type and with figures in them, say the same.

    Parameters
    ----------
    new, committed
        The texts.
    tolerance
        Of the numbers outside figures' paths and positions.
    """
    if new == committed:
        return True
    figures, references = _SVG.findall(new), _SVG.findall(committed)
    return (
        len(figures) == len(references)
        and _same_text(_SVG.sub("<svg>", new), _SVG.sub("<svg>", committed), tolerance)
        and all(map(_same_figure, figures, references, [tolerance] * len(figures)))
    )


def _same_text(new: str, committed: str, tolerance: Tolerance) -> bool:
    return _words(new) == _words(committed) and all(
        map(tolerance.allows, _NUMBER.findall(new), _NUMBER.findall(committed))
    )


def _words(text: str) -> list[str]:
    pieces = _NUMBER.split(text)
    first, last = 0, len(pieces) - 1
    for position, piece in enumerate(pieces):
        if position != first:
            piece = piece.lstrip(" \t")
        pieces[position] = piece.rstrip(" \t") if position != last else piece
    return pieces


def _same_figure(new: str, committed: str, tolerance: Tolerance) -> bool:
    if new == committed:
        return True
    one, other = map(_parsed, (new, committed))
    return _same_element(one, other, PIXELS / _pixels_a_unit(other), tolerance)


def _parsed(svg: str) -> ElementTree.Element:
    # With the comments: Matplotlib draws text as paths and says in a comment what they spell.
    return ElementTree.fromstring(svg, ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True)))


def _pixels_a_unit(svg: ElementTree.Element) -> float:
    """The size of a unit of the drawing where the page shows it at full width."""
    width = re.search(r"max-width:(\d+)px", svg.get("style", ""))
    return float(width[1]) / float(svg.get("viewBox", "0 0 1 1").split()[2]) if width else 1.0


def _same_element(new: Any, committed: Any, distance: float, tolerance: Tolerance) -> bool:
    if new.tag != committed.tag or new.keys() != committed.keys() or len(new) != len(committed):
        return False
    for key, value in committed.items():
        found = new.get(key)
        if key == "d":
            agree = _same_path(found, value, distance)
        elif key in _POSITIONS:
            agree = _same_positions(found, value, distance)
        else:
            agree = found == value
        if not agree:
            return False
    return all(
        _same_text(getattr(new, key) or "", getattr(committed, key) or "", tolerance) for key in ("text", "tail")
    ) and all(_same_element(one, other, distance, tolerance) for one, other in zip_longest(new, committed))


def _same_positions(new: str, committed: str, distance: float) -> bool:
    form = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
    return re.split(form, new) == re.split(form, committed) and all(
        abs(float(one) - float(other)) <= distance
        for one, other in zip(re.findall(form, new), re.findall(form, committed), strict=True)
    )


def _same_path(new: str, committed: str, distance: float) -> bool:
    if new == committed:
        return True
    from scipy.spatial import KDTree

    one, other = _points(new, _SPACING * distance), _points(committed, _SPACING * distance)
    if not len(one) or not len(other):
        return len(one) == len(other)
    return all(KDTree(a).query(b)[0].max() <= distance * (1 + _SPACING) for a, b in ((one, other), (other, one)))


def _points(path: str, spacing: float) -> np.ndarray[Any, Any]:
    """Points along a path, at most `spacing` apart."""
    from fontTools.pens.recordingPen import RecordingPen  # type: ignore[import-untyped]
    from fontTools.svgLib.path import parse_path  # type: ignore[import-untyped]

    pen = RecordingPen()
    parse_path(path, pen)
    points: list[np.ndarray[Any, Any]] = []
    here = np.zeros(2)
    for action, operands in pen.value:
        corners = np.asarray(operands, dtype=float).reshape(-1, 2)
        if action == "moveTo":
            points.append(corners)
        elif corners.size:
            for point in _bezier(np.vstack([here, corners])):
                steps = np.linspace(0, 1, 1 + max(1, int(np.ceil(np.hypot(*(point - here)) / spacing))))
                points.append(here + (point - here) * steps[1:, None])
                here = point
        here = corners[-1] if corners.size else here
    return np.vstack(points) if points else np.empty((0, 2))


def _bezier(corners: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Points on a Bézier curve of any degree, by de Casteljau, without the first; of a line, its end."""
    if len(corners) == 2:
        return corners[1:]
    levels = [np.broadcast_to(corner, (len(_ON_A_CURVE), 2)) for corner in corners]
    while len(levels) > 1:
        levels = [a + (b - a) * _ON_A_CURVE for a, b in pairwise(levels)]
    return levels[0]


def settled(new: list[Any], committed: list[Any], tolerance: Tolerance) -> list[Any]:
    """New outputs, each replaced by the committed one where both say the same.

    Parameters
    ----------
    new, committed
        Outputs of a cell, streams coalesced.
    tolerance
        Of the cell.

    Returns
    -------
    list of NotebookNode
        As many as there are new ones. Only values of text are replaced.
    """
    if len(new) != len(committed):
        return new
    return [_settled_output(one, other, tolerance) for one, other in zip(new, committed, strict=True)]


def _settled_output(new: Any, committed: Any, tolerance: Tolerance) -> Any:
    if new.output_type != committed.output_type or new.get("name") != committed.get("name"):
        return new
    for one, other in ((new, committed), (new.get("data", {}), committed.get("data", {}))):
        for key in one.keys() & other.keys():
            if isinstance(one[key], str) and isinstance(other[key], str) and same(one[key], other[key], tolerance):
                one[key] = other[key]
    return new
