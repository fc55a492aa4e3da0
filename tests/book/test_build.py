"""The book builds without a warning, again and again, and a warning fails every build."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from bs4 import BeautifulSoup

from book._tools.build import build
from book._tools.places import BOOK, ROOT
from tests.book.test_html import PAGES

#: Of the extensions that Jupyter Book adds, those that plain Sphinx does without.
OF_JUPYTER_BOOK = ("jupyter_book", "sphinx_thebe", "sphinx_comments", "sphinx_jupyterbook_latex")


def test_the_book_builds_twice_in_a_row(site, tmp_path):
    """The second time in a copy: other processes read these pages meanwhile."""
    assert (site / "index.html").is_file()
    shutil.copytree(site.parent, tmp_path / "_build")
    pages = build(tmp_path)
    assert pages == tmp_path / "_build" / "html"
    assert (pages / "index.html").is_file()


@pytest.mark.slow
def test_plain_sphinx_makes_the_same_pages(site, tmp_path):
    """The way out, should Jupyter Book 1 ever stop working: CONTRIBUTING, "Why not Jupyter Book 2"."""
    source, pages = tmp_path / "book", tmp_path / "pages"
    shutil.copytree(BOOK, source, ignore=shutil.ignore_patterns("_build"))
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, source)
    export = "from jupyter_book.cli.main import main; main()", "config", "sphinx", str(source)
    said(sys.executable, "-c", *export)
    with (source / "conf.py").open("a", encoding="utf-8") as configuration:
        configuration.write(f"extensions = [each for each in extensions if each not in {OF_JUPYTER_BOOK}]\n")
    said(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(source), str(pages))
    assert [name for name in PAGES if text(pages / name) != text(site / name)] == []


def said(*command):
    """Run a command to its end, as it runs on a machine without a GPU; what it says if it fails."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1", "PYTHONPATH": str(BOOK / "_tools")}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout


def text(page):
    """What a reader reads on a page."""
    (main,) = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").select("main article.bd-article")
    words = main.get_text().split()
    assert len(words) > 20
    return words


@pytest.fixture
def small_book(tmp_path):
    """A book of one page, with the configuration of the real one."""
    shutil.copy(ROOT / "_config.yml", tmp_path)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: preface\n")
    source = tmp_path / "book"
    source.mkdir()
    shutil.copytree(BOOK / "_tools", source / "_tools")
    shutil.copytree(BOOK / "_static", source / "_static")
    shutil.copy(BOOK / "references.bib", source)
    return source


def test_the_repositorys_address_reaches_a_page(small_book):
    (small_book / "preface.md").write_text("# Title\n\n```sh\ngit clone {{ repository }}\n```\n")
    page = (build(small_book, small_book) / "preface.html").read_text(encoding="utf-8")
    assert 'git<span class="w"> </span>clone<span class="w"> </span>https://' in page


def test_the_address_of_a_formula_stays_when_it_loses_its_number(small_book):
    formulas = "$$\nx\n$$ (eq-numbered)\n\n(eq-plain)=\n$$\ny\n$$\n"
    (small_book / "preface.md").write_text(f"# Title\n\n{{eq}}`eq-numbered`, [y](#eq-plain)\n\n{formulas}")
    page = (build(small_book, small_book) / "preface.html").read_text(encoding="utf-8")
    assert page.count('id="equation-eq-numbered"') == page.count('id="equation-eq-plain"') == 1
    assert page.count('class="eqno"') == 1


def test_broken_references_fail_the_first_build_and_the_second(small_book):
    faults = ["{doc}`nowhere`", "{eq}`eq-nothing`", "{cite:t}`nobody1900`", "[gone](gone.md)"]
    (small_book / "preface.md").write_text("# Title\n\n" + "\n\n".join(faults) + "\n")
    for _ in range(2):
        with pytest.raises(RuntimeError) as failure:
            build(small_book, small_book)
        for name in ("nowhere", "eq-nothing", "nobody1900", "gone.md"):
            assert re.search(f"WARNING: .*{name}", str(failure.value))
