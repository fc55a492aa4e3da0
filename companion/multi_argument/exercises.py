"""The exercises on the pages of two-argument neurons: right answers, and mistakes that have words of their own."""

from __future__ import annotations

from companion.exercises import Exercise

__all__ = ["EXERCISES"]

# --- page multi-argument ----------------------------------------------------------------------------------------------

ON_THE_FIRST_PAGE: tuple[Exercise, ...] = ()

# --- page multi-argument-derivation -----------------------------------------------------------------------------------

ON_THE_SECOND_PAGE: tuple[Exercise, ...] = ()

# --- page multi-argument-kernel ---------------------------------------------------------------------------------------

ON_THE_THIRD_PAGE: tuple[Exercise, ...] = ()

EXERCISES = ON_THE_FIRST_PAGE + ON_THE_SECOND_PAGE + ON_THE_THIRD_PAGE
