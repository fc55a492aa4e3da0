"""The one list of mechanisms and the one of chapters, by folder: what goes through all asks here."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

__all__ = ["CHAPTERS", "ROOMS", "modules", "studies", "title"]

ROOMS = ("apa", "layeract", "dac", "dnrt", "multi_argument")
"""In the order in which formulas register: what several mechanisms need, the first one brings."""

CHAPTERS = ("ground", "together")
"""What belongs to no mechanism, or to all of them: their folders lie in ``companion/study``."""


def modules(name: str) -> dict[str, ModuleType]:
    """Import the module of this name in every room that has one.

    Parameters
    ----------
    name : str
        Such as "op" or "costs".

    Returns
    -------
    dict
        Module by room, in the order of `ROOMS`.

    Examples
    --------
    >>> modules("costs")["apa"].__name__
    'companion.apa.costs'
    """
    return _imported({room: f"companion.{room}.{name}" for room in ROOMS})


def studies(name: str) -> dict[str, ModuleType]:
    """Import the module of this name in the study of every mechanism, and in every chapter, that has one.

    Parameters
    ----------
    name : str
        Such as "formulas" or "exercises".

    Returns
    -------
    dict
        Module by room or chapter, in the order of `ROOMS`, then of `CHAPTERS`.

    Examples
    --------
    >>> studies("bench")["apa"].__name__
    'companion.apa.study.bench'
    """
    of_rooms = {room: f"companion.{room}.study.{name}" for room in ROOMS}
    return _imported(of_rooms | {chapter: f"companion.study.{chapter}.{name}" for chapter in CHAPTERS})


def _imported(paths: dict[str, str]) -> dict[str, ModuleType]:
    return {name: importlib.import_module(path) for name, path in paths.items() if importlib.util.find_spec(path)}


def title(room: str) -> str:
    """What a room's mechanism is called on a page: the beginning of the room's docstring, up to a colon.

    Parameters
    ----------
    room : str
        One of `ROOMS`.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> title("layeract")
    'LayerAct'
    """
    return (importlib.import_module(f"companion.{room}").__doc__ or room).partition(":")[0]
