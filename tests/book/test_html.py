"""In the rendered pages every link, citation and picture leads somewhere."""

import re
import types
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from book._tools.places import BOOK, ROOT, notebooks, owner_and_name

PAGES = sorted(
    path.relative_to(BOOK).with_suffix(".html").as_posix()
    for path in BOOK.rglob("*")
    if path.suffix in (".md", ".ipynb") and not re.search(r"/[._]", path.relative_to(ROOT).as_posix())
)


@cache
def _soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def _anchors(path: Path) -> frozenset[str]:
    return frozenset(tag["id"] for tag in _soup(path).find_all(id=True))


@pytest.mark.parametrize("name", PAGES)
def test_every_internal_link_and_anchor_resolves(site, name):
    page = site / name
    broken = []
    for tag in _soup(page).find_all("a", href=True):
        parts = urlsplit(tag["href"])
        if parts.scheme or parts.netloc or tag["href"] == "#":
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        exists = target.is_file() and (
            not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in _anchors(target)
        )
        if not exists:
            broken.append(tag["href"])
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_every_picture_exists_and_has_a_description(site, name):
    page = site / name
    for picture in _soup(page).select("main img"):
        assert picture.get("alt", "").strip(), picture
        assert not re.fullmatch(r".*[0-9a-f]{32,}.*", picture["alt"]), picture
        if not urlsplit(picture["src"]).scheme:
            assert (page.parent / picture["src"]).resolve().is_file(), picture
    for figure in _soup(page).select("main .neuron-figure svg, main .neuron-curve svg"):
        assert figure["role"] == "img"
        assert figure["aria-label"].strip()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_loaded_from_elsewhere(site, name):
    soup = _soup(site / name)
    loaded = [tag["src"] for tag in soup.find_all(["script", "img", "iframe"], src=True)]
    loaded += [tag["href"] for tag in soup.find_all("link", rel="stylesheet", href=True)]
    assert [address for address in loaded if urlsplit(address).netloc] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_id_is_given_twice(site, name):
    ids = [tag["id"] for tag in _soup(site / name).select("main [id]")]
    assert sorted(each for each in set(ids) if ids.count(each) > 1) == []


@pytest.mark.parametrize("name", PAGES)
def test_no_markup_shows_raw(site, name):
    main = BeautifulSoup(str(_soup(site / name).select_one("main")), "html.parser")
    for code in main.select("pre, code, script, style, .math"):
        code.decompose()
    text = main.get_text()
    assert not re.search(r":::|\{[a-z:]+\}`|\$\$|\{\{|:cite:|:func:", text)
    assert not main.select(".problematic, .system-message, .error")


def test_every_citation_leads_to_an_entry_and_every_paper_is_cited(site):
    entries = _anchors(site / "appendix" / "references.html")
    cited = set()
    for name in PAGES:
        for tag in _soup(site / name).select("main a[href*='references.html#']"):
            cited.add(urlsplit(tag["href"]).fragment)
    assert cited
    assert cited <= entries


def test_the_five_papers_head_the_bibliography(site):
    keys = re.findall(r"^@\w+\{(\w+),", (BOOK / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
    text = _soup(site / "appendix" / "references.html").select_one("main").get_text()
    assert len(keys) == len(set(keys)) >= 20
    for title in (
        "Adaptive Parametric Activation: Unifying",
        "Dynamic Neural Response Tuning",
        "Increasing biases can be more efficient",
        "Two-Argument Activation Functions",
        "Layer-level activation mechanism",
    ):
        assert title.lower() in text.lower()


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_colab_button_opens_the_published_copy(site, path):
    owner, name = owner_and_name()
    page = _soup(site / path.relative_to(BOOK).with_suffix(".html"))
    links = [tag["href"] for tag in page.select("a[href*='colab.research.google.com']")]
    where = path.relative_to(ROOT).as_posix()
    assert set(links) == {f"https://colab.research.google.com/github/{owner}/{name}/blob/colab/{where}"}


def test_the_api_reference_lists_every_public_name(site):
    import companion
    from companion import functional

    anchors = _anchors(site / "appendix" / "api.html")
    public = [f"companion.{name}" for name in getattr(companion, "__all__", ())]
    public += [f"companion.functional.{name}" for name in functional.__all__]
    objects = {name: getattr(companion, name.split(".")[-1], None) for name in public}
    described = [name for name, value in objects.items() if not isinstance(value, str | types.ModuleType)]
    assert [name for name in described if name not in anchors] == []


def test_the_api_reference_does_not_repeat_what_torch_says(site):
    # a module without words of its own for `forward` would show those of nn.Module
    assert "Should be overridden by all subclasses" not in _soup(site / "appendix" / "api.html").get_text()
