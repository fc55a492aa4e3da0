"""Cases that fail for one reason are one test, which runs them all and names each that fails; and the rooms' cases."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

Cases = Iterable[Any] | Callable[[], Iterable[Any]]


def together(names: str, cases: Cases, of: Callable[[Any], object] = str) -> Callable[..., Any]:
    """Like ``pytest.mark.parametrize``, but one test, which fails with a list of the cases that fail.

    Each case has the random numbers that it has alone. Fixtures are made once: what a case changes, it changes back.

    Parameters
    ----------
    names
        Of the arguments, with commas between; several take what a case unpacks to.
    cases
        At least one; or a function that finds them out, so that it is not done where the test does not run.
    of
        What to call a case in the list.
    """
    arguments = [name.strip() for name in names.split(",")]
    given = cases if callable(cases) else list(cases).copy

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_of_them(*instance: Any, **fixtures: Any) -> None:
            failures, all_cases = [], list(given())
            assert all_cases, f"{test.__name__}: there are no cases"
            for case in all_cases:
                values = [case] if len(arguments) == 1 else case
                torch.manual_seed(0)
                try:
                    test(*instance, **fixtures, **dict(zip(arguments, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"--- {of(case)}\n{type(error).__name__}: {error}")
            if failures:
                summary = f"{test.__name__}: {len(failures)} of {len(all_cases)} cases fail"
                pytest.fail("\n".join([summary, *failures]), pytrace=False)

        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in arguments]
        all_of_them.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return all_of_them

    return decorate


def of_rooms(table: str, file: str = "cases") -> dict[str, Any]:
    """The cases in a table of this name: every room has such a file among its tests, and a chapter may have one."""
    from companion import rooms

    chapters = [f"tests.study.{chapter}.{file}" for chapter in rooms.CHAPTERS]
    places = [*(f"tests.{room}.{file}" for room in rooms.ROOMS), *filter(importlib.util.find_spec, chapters)]
    modules = [importlib.import_module(place) for place in places]
    return {name: case for module in modules for name, case in getattr(module, table, {}).items()}
