"""The one list of mechanisms, by the names of their folders. Whatever goes through all of them asks here."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

__all__ = ["CHAPTERS", "ROOMS", "modules", "title"]

ROOMS = ("apa", "layeract", "dac", "dnrt", "multi_argument")
"""In the order in which formulas register: what several mechanisms need, the first one brings."""

CHAPTERS = ("together",)
"""What goes through all mechanisms, in ``companion/study``."""


def modules(name: str) -> dict[str, ModuleType]:
    """Import the module of this name in every room that has one.

    Parameters
    ----------
    name : str
        Such as "formulas" or "bench".

    Returns
    -------
    dict
        Module by room, in the order of `ROOMS`.

    Examples
    --------
    >>> modules("bench")["apa"].__name__
    'companion.apa.bench'
    """
    found = {room: f"companion.{room}.{name}" for room in ROOMS}
    return {room: importlib.import_module(path) for room, path in found.items() if importlib.util.find_spec(path)}


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
