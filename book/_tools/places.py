"""Where the book's sources lie, and where the project lives on the network."""

from __future__ import annotations

import subprocess
import tomllib
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"


def notebooks() -> list[Path]:
    """The notebooks that are part of the book, in order of their names."""
    return sorted(
        path
        for path in BOOK.rglob("*.ipynb")
        if not any(part.startswith((".", "_")) for part in path.relative_to(BOOK).parts)
    )


def project_files() -> list[Path]:
    """Every file of the project that git tracks, or would if it were added.

    Raises
    ------
    RuntimeError
        If the project is not a git checkout.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        raise RuntimeError(f"the gate reads the list of files from git, and git said: {listing.stderr.strip()}")
    paths = (ROOT / name for name in sorted(set(listing.stdout.split("\0"))) if name)
    return [path for path in paths if path.is_file()]


@cache
def repository() -> str:
    """The address of the repository, from the one file that knows it."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return str(config["repository"]["url"]).rstrip("/")


def owner_and_name() -> tuple[str, str]:
    """The last two parts of the repository's address."""
    owner, name = repository().split("/")[-2:]
    return owner, name


def website() -> str:
    """The address of the published pages: GitHub's for this repository."""
    owner, name = owner_and_name()
    return f"https://{owner.lower()}.github.io/{name}"


def page_address(source: Path) -> str:
    """The address of the page made from a source file of the book."""
    return f"{website()}/{source.relative_to(BOOK).with_suffix('.html').as_posix()}"


def raw_address(file: Path, branch: str) -> str:
    """The address of a file's bytes in a branch or tag of the repository."""
    owner, name = owner_and_name()
    return f"https://raw.githubusercontent.com/{owner}/{name}/{branch}/{file.relative_to(ROOT).as_posix()}"


def release_tag() -> str:
    """The tag of this version's release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return f"v{project['version']}"
