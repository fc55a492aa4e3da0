"""What a page of the book shows beside its prose: numbers within sentences, and pieces of the kernels.

Light: a notebook's display is imported when something is shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Source", "called", "cuda", "glue"]

#: Where MyST looks for what ``{glue:text}`` inserts: an output of a type that no notebook shows.
PREFIX = "application/papermill.record/"


def glue(**values: Any) -> None:
    """Make values available to the prose of the same page: ``{glue:text}`name```, formatted ``{glue:text}`name:.2f```.

    The values are outputs of their cell, compared like all others: a stale number fails a test. A number that
    processors compute differently is glued as text, ``f"{gap:.2f}"``, or its cell declares a tolerance.

    Parameters
    ----------
    **values : str or number
        By the names that the prose uses, each once on a page. Numbers of one element of PyTorch or NumPy are numbers.

    Raises
    ------
    TypeError
        If a value is neither text nor a number.

    Examples
    --------
    In a cell ``glue(seeds=5, gain="0.3 points")``, in a sentence ``With {glue:text}`seeds` seeds we gained
    {glue:text}`gain`.``
    """
    from IPython.display import display  # type: ignore[attr-defined,unused-ignore]

    for name, value in values.items():
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, bool) or not isinstance(number, str | int | float):
            raise TypeError(f"{name}: got {type(value).__name__}, allowed is text or a number")
        display(  # type: ignore[no-untyped-call,unused-ignore]
            {f"{PREFIX}text/plain": repr(number)},
            metadata={"scrapbook": {"name": name, "mime_prefix": PREFIX}},
            raw=True,
        )


@dataclass(frozen=True, repr=False)
class Source:
    """A piece of CUDA C++, which notebooks show with its syntax coloured."""

    text: str

    def _repr_markdown_(self) -> str:
        return f"```cpp\n{self.text}\n```"

    def __repr__(self) -> str:
        return self.text


def cuda(path: str, name: str | None = None) -> Source:
    """A piece of a kernel's source, to be shown on a page.

    Parameters
    ----------
    path : str
        A .cu or .cuh file below ``companion/``, such as "dnrt/raa.cu".
    name : str, optional
        Of a function, a structure or a macro: with the comment above it, to its closing brace; all functions of this
        name. Or of a region, which a line ``// --- name ---`` opens (up to the first comma or colon), or "opening", the
        file's first comment. Without a name the whole file.

    Returns
    -------
    Source
        Its text. Displayed when it is a cell's last value.

    Raises
    ------
    ValueError
        If there is no such file, or nothing of this name in it; the message lists what there is.

    Examples
    --------
    >>> cuda("cuda/rows.cuh", "warp_sum").text.splitlines()[0]
    '__device__ __forceinline__ float warp_sum(float x) {'
    """
    text = _file(path).read_text(encoding="utf-8")
    if name is None:
        return Source(text.rstrip())
    pieces = _pieces(text)
    if name not in pieces:
        raise ValueError(f"name: got {name!r}, allowed in {path} are {', '.join(pieces)}")
    return Source("\n\n".join(pieces[name]))


def called(path: str, *names: str) -> Source:
    """All that functions of a kernel use of the project's own, to be shown in a fold at the end of a page.

    Parameters
    ----------
    path : str
        A .cu or .cuh file below ``companion/``, as for `cuda`.
    *names : str
        Of functions and structures in it or in what it includes, which the page shows.

    Returns
    -------
    Source
        The functions, structures and macros that they name, and those that these name, file by file; without what the
        page shows. Where a name belongs to a member, all structures that have such a member are there.

    Raises
    ------
    ValueError
        If there is no such file, or nothing of this name; the message lists what there is.

    Examples
    --------
    >>> print(called("cuda/rows.cuh", "whole_block").text.splitlines()[0])
    // --- cuda/rows.cuh ---
    """
    pieces = {
        (file, name): texts
        for file in _included(_file(path))
        for name, texts in _pieces(file.read_text(encoding="utf-8"), regions=False).items()
    }
    known = {name for _, name in pieces}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"names: got {unknown[0]!r}, allowed in {path} are {', '.join(sorted(known))}")
    members = {
        at: set(_MEMBER.findall(_code(text))) for at, texts in pieces.items() for text in texts if _is_type(text)
    }
    used: set[tuple[Path, str]] = set()
    waiting = [at for at in pieces if at[1] in names]
    while waiting:
        code = "\n".join(map(_code, pieces[waiting.pop()]))
        words, of_members = set(re.findall(r"\w+", code)), set(re.findall(r"(?:\.|->|::)\s*(\w+)\s*[(<]", code))
        found = {at for at in pieces if at[1] in words or members.get(at, set()) & of_members} - used
        waiting += [at for at in found if at[1] not in names]
        used |= found
    package, shown = Path(__file__).parents[1], []
    for file in dict.fromkeys(file for file, _ in pieces):
        texts = [
            text
            for at, texts in pieces.items()
            if at in used and at[0] == file and at[1] not in names
            for text in texts
        ]
        if texts:
            shown += [f"// --- {file.relative_to(package).as_posix()} ---", *texts]
    return Source("\n\n".join(shown))


_MEMBER = re.compile(r"__device__[^;{}()]*?\b(\w+)\s*\(")


def _is_type(text: str) -> bool:
    """Whether a piece is a structure."""
    return re.search(r"^(?:template\s*<.*>\s*)?(?:struct|class|union)\b", _code(text), re.MULTILINE) is not None


def _file(path: str) -> Path:
    """A source by its place in the package."""
    package = Path(__file__).parents[1]
    files = {file.relative_to(package).as_posix(): file for file in sorted(package.rglob("*.cu*"))}
    if path not in files:
        raise ValueError(f"path: got {path!r}, allowed are {', '.join(files)}")
    return files[path]


def _included(file: Path) -> list[Path]:
    """A source and the project's own headers that it includes, directly or through another."""
    found = [file]
    for name in re.findall(r'#include "([^"]+)"', file.read_text(encoding="utf-8")):
        header = next(folder / name for folder in (file.parent, _HEADERS) if (folder / name).exists())
        found += [each for each in _included(header) if each not in found]
    return found


_HEADERS = Path(__file__).parents[1] / "cuda"
_COMMENT_OR_TEXT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_REGION = re.compile(r"^// --- ([^,:\n]+?)(?:[,:][^\n]*)? -+$", re.MULTILINE)
_DIRECTIVE = re.compile(r"#(?:[^\n]*\\\n)*[^\n]*")
_NAMED = re.compile(r"\b(?:struct|class|enum|union)\s+(\w+)[^()]*$|(\w+)(?:<[^<>()]*>)?\s*\(")


def _code(text: str) -> str:
    """The same, as long, without comments and texts."""
    return _COMMENT_OR_TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _pieces(text: str, regions: bool = True) -> dict[str, list[str]]:
    """What can be shown of a source, by name and in its order: regions too, or functions, structures and macros."""
    definitions: dict[str, list[str]] = {}
    for name, start, end in _definitions(text):
        above = re.search(r"(?:^[ \t]*//[^\n]*\n)*\Z", text[:start], re.MULTILINE)
        assert above is not None
        comment = above[0] if not _REGION.search(above[0]) else ""
        definitions.setdefault(name, []).append(f"{comment}{text[start:end]}".rstrip())
    if not regions:
        return definitions
    pieces: dict[str, list[str]] = {}
    if opening := re.match(r"(?://[^\n]*\n)+", text):
        pieces["opening"] = [opening[0].rstrip()]
    found = list(_REGION.finditer(text))
    ends = [region.start() for region in found[1:]] + [len(text)]
    for region, end in zip(found, ends, strict=False):
        rest = text[region.start() : end]
        pieces[region[1]] = [re.split(r"^}  // namespace", rest, maxsplit=1, flags=re.MULTILINE)[0].rstrip()]
    for name, texts in definitions.items():
        pieces.setdefault(name, []).extend(texts)
    return pieces


def _definitions(text: str) -> list[tuple[str, int, int]]:
    """Name, beginning and end of every function, structure and macro that stands in no other."""
    code = _code(text)  # without anything whose braces do not count
    found, at = [], 0
    while statement := re.compile(r"[^\s}]").search(code, at):
        start = statement.start()
        if directive := _DIRECTIVE.match(code, start):
            at = directive.end()
            if macro := re.match(r"#define (\w+)\(", directive[0]):
                found.append((macro[1], start, at))
            continue
        end = re.compile(r"[;{]|\Z").search(code, start)
        assert end is not None
        at = end.end()
        head = re.sub(r"(?:__launch_bounds__|alignas)\s*\((?:[^()]|\([^()]*\))*\)", "", code[start : end.start()])
        if end[0] != "{" or head.startswith("namespace"):
            continue
        at = _closing_brace(code, at)
        if named := _NAMED.search(re.sub(r"^template\s*<[^<>]*(?:<[^<>]*>[^<>]*)*>", "", head)):
            found.append((named[1] or named[2], start, at))
    return found


def _closing_brace(code: str, at: int) -> int:
    """Behind the brace that closes the one before ``at``, and behind the semicolon that follows it."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(code, at):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            semicolon = re.compile(r"\s*;").match(code, brace.end())
            return semicolon.end() if semicolon else brace.end()
    raise ValueError("a brace is not closed")
