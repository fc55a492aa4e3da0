"""Sentences that stand in tests: a page says nothing that no test, or no list of harmless ones, knows."""

from __future__ import annotations

import re
from collections.abc import Callable


class Said:
    """The sentences of one page for which tests stand."""

    def __init__(self) -> None:
        self.tested: set[str] = set()

    def says(self, *sentences: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """The sentences that a test stands for."""
        self.tested.update(sentences)
        return lambda test: test


def sentences(markdown: str) -> set[str]:
    """All sentences outside headings and blocks of code; a row of a table is one."""
    prose = re.sub(r"^ *```.*?^ *```$|^#.*?$|^\| -.*?$", "\n", markdown, flags=re.DOTALL | re.MULTILINE)
    blocks = re.split(r"\n\s*\n|\n(?=[|-])|\n(?=\d\. )", prose)
    lines = (" ".join(block.split()) for block in blocks)
    return {sentence for line in lines for sentence in re.split(r"(?<=[.!?*])\s+(?=[A-Z`])", line) if sentence}
