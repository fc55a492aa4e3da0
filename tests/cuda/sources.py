"""Copies of the package's kernels with changes: a fault planted, one instance instead of many, a kernel more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from companion.cuda import build

_INSTANCES = re.compile(r"^COMPANION_(KERNELS\(\w+, \w+\)|DTYPES\(.*\))$", re.MULTILINE)


def with_instances(source: Path, instances: str) -> str:
    """The text of a source with other instances of its kernels: one compiles in a fraction of the time."""
    return f"{_INSTANCES.sub('', source.read_text())}{instances}\n"


def changed(folder: Path, source: Path, text: str, changes: Mapping[str, str] | None = None) -> Path:
    """Write ``text`` as a copy of a source, and the headers that it includes, with changes.

    Each change is old → new, and the old stands in exactly one place of all these files.
    """
    files = {source.name: text, **build._included(text, source.parent)}
    for old, new in (changes or {}).items():
        assert sum(content.count(old) for content in files.values()) == 1, old
        files = {name: content.replace(old, new) for name, content in files.items()}
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder / source.name
