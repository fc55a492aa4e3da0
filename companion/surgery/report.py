"""What was done to a network, in few lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch import fx, nn

__all__ = ["alike", "parameters", "put_report", "refuse_taken"]


def refuse_taken(model: nn.Module, name: str, report: type) -> None:
    """Refuse a network that has something of its own where a report will stand: its forward may read it."""
    if hasattr(model, name) and not isinstance(own := getattr(model, name), report):
        raise ValueError(
            f"model: got a {type(model).__name__} with an attribute {name!r} of its own, a {type(own).__name__}, "
            "allowed is one without: the report stands there"
        )


def put_report(model: nn.Module, name: str, report: object) -> None:
    """Let a network have a report, and its copies, too."""
    vars(model)[name] = report
    if isinstance(model, fx.GraphModule):  # of whose attributes a copy has only those that are named here
        kept: dict[str, Any] = model.meta.setdefault("_user_preserved_attributes", {})
        kept[name] = report


def alike(said: Mapping[str, str]) -> list[str]:
    """A line for all names of which the same is said: three of them, and how many there are.

    A name that is a number, as in an ``nn.Sequential``, stands in quotes: it is no count.
    """
    names = defaultdict(list)
    for name, what in said.items():
        names[what].append(repr(name) if name.isdigit() else name or "(itself)")
    return [
        f"{what}: {', '.join(few)}" if len(few) <= 3 else f"{what} ({len(few)}): {', '.join(few[:3])}, …"
        for what, few in names.items()
    ]


def parameters(model: nn.Module) -> int:
    """How many a network has."""
    return sum(parameter.numel() for parameter in model.parameters())
