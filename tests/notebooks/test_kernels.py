"""The chapter on kernels opens its part of the book, and every kernel page leads back to it."""

import nbformat
import yaml

from book._tools.places import BOOK, ROOT
from tests.cases import together

PAGES = sorted(path.stem for path in (BOOK / "mechanisms").glob("*-kernel.ipynb"))


@together("name", PAGES)
def test_a_kernel_page_sends_who_is_new_to_the_chapter_on_kernels(name):
    opening = nbformat.read(BOOK / "mechanisms" / f"{name}.ipynb", as_version=4).cells[0].source
    assert "**You need** {doc}`../ground/kernels`" in opening


def test_the_chapter_and_the_puzzles_are_the_part_on_kernels():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    (part,) = [part for part in parts if part["caption"] == "Kernels"]
    assert [chapter["file"] for chapter in part["chapters"]] == ["ground/kernels", "ground/puzzles"]
