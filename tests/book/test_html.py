"""In the rendered pages every link, citation and picture leads somewhere."""

import builtins
import re
import types
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

import companion
from book._tools import torch_pages
from book._tools.places import BOOK, ROOT, notebooks, owner_and_name, release_tag, website
from book._tools.plain import plain_copy
from companion import simulator
from companion.cuda import build as cuda_build

PAGES = sorted(
    path.relative_to(BOOK).with_suffix(".html").as_posix()
    for path in BOOK.rglob("*")
    if path.suffix in (".md", ".ipynb") and not re.search(r"/[._]", path.relative_to(ROOT).as_posix())
)


@cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def _anchors(path: Path) -> frozenset[str]:
    return frozenset(tag["id"] for tag in parsed(path).find_all(id=True))


@pytest.mark.parametrize("name", PAGES)
def test_every_internal_link_and_anchor_resolves(site, name):
    page = site / name
    broken = []
    for tag in parsed(page).find_all("a", href=True):
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
    for picture in parsed(page).select("main img"):
        assert picture.get("alt", "").strip(), picture
        assert not re.fullmatch(r".*[0-9a-f]{32,}.*", picture["alt"]), picture
        if not urlsplit(picture["src"]).scheme:
            assert (page.parent / picture["src"]).resolve().is_file(), picture
    for figure in parsed(page).select("main .neuron-figure svg, main .neuron-curve svg"):
        assert figure["role"] == "img"
        assert figure["aria-label"].strip()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_loaded_from_elsewhere(site, name):
    soup = parsed(site / name)
    loaded = [tag["src"] for tag in soup.find_all(["script", "img", "iframe"], src=True)]
    loaded += [tag["href"] for tag in soup.find_all("link", rel="stylesheet", href=True)]
    assert [address for address in loaded if urlsplit(address).netloc] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_id_is_given_twice(site, name):
    ids = [tag["id"] for tag in parsed(site / name).select("main [id]")]
    assert sorted(each for each in set(ids) if ids.count(each) > 1) == []


@pytest.mark.parametrize("name", PAGES)
def test_no_markup_shows_raw(site, name):
    main = BeautifulSoup(str(parsed(site / name).select_one("main")), "html.parser")
    for code in main.select("pre, code, script, style, .math"):
        code.decompose()
    text = main.get_text()
    assert not re.search(r":::|\{[a-z:]+\}`|\$\$|\{\{|:cite:|:func:", text)
    assert not main.select(".problematic, .system-message, .error")


def test_every_citation_leads_to_an_entry_and_every_paper_is_cited(site):
    entries = _anchors(site / "appendix" / "references.html")
    cited = set()
    for name in PAGES:
        for tag in parsed(site / name).select("main a[href*='references.html#']"):
            cited.add(urlsplit(tag["href"]).fragment)
    assert cited
    assert cited <= entries


def test_the_five_papers_head_the_bibliography(site):
    keys = re.findall(r"^@\w+\{(\w+),", (BOOK / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
    text = parsed(site / "appendix" / "references.html").select_one("main").get_text()
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
    page = parsed(site / path.relative_to(BOOK).with_suffix(".html"))
    links = [tag["href"] for tag in page.select("a[href*='colab.research.google.com']")]
    where = path.relative_to(ROOT).as_posix()
    assert set(links) == {f"https://colab.research.google.com/github/{owner}/{name}/blob/colab/{where}"}


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_download_button_gives_the_copy_for_jupyter_and_its_links_lead_to_pages(site, path):
    page = site / path.relative_to(BOOK).with_suffix(".html")
    (button,) = parsed(page).select("a.btn-download-source-button[href$='.ipynb']")
    copy = nbformat.read(page.parent / button["href"], as_version=4)
    assert copy == plain_copy(path, release_tag())
    texts = [cell.source for cell in copy.cells if cell.cell_type == "markdown"]
    for output in (output for cell in copy.cells for output in cell.get("outputs", [])):
        texts += [output.get("data", {}).get(kind, "") for kind in ("text/html", "text/markdown")]
    prose = re.sub(r"```.*?```|`[^`]*`", "", "\n\n".join(texts), flags=re.DOTALL)
    link = re.compile(r"""\]\(([^)\s]+)\)|<a href=["']([^"']+)["']""")
    links = {first or second for first, second in link.findall(prose)}
    assert [each for each in links if not each.startswith("http")] == []
    inside = [urlsplit(each.removeprefix(f"{website()}/")) for each in links if each.startswith(website())]
    assert inside
    assert [to.geturl() for to in inside if to.fragment and to.fragment not in _anchors(site / to.path)] == []
    assert [to.geturl() for to in inside if not (site / to.path).is_file()] == []


def test_the_book_says_what_it_is_called_which_version_it_is_and_where_it_lies(site):
    _, project, version, _ = (site / "objects.inv").read_bytes().split(b"\n", 3)
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert project.decode() == f"# Project: {config['title']}"
    assert version.decode() == f"# Version: {companion.__version__}"
    for name in PAGES:
        (canonical,) = parsed(site / name).find_all("link", rel="canonical")
        assert canonical["href"] == f"{website()}/{name}"


def test_what_the_api_reference_calls_an_exception_is_one(site):
    # a section of a docstring that napoleon does not know becomes part of the one before it
    named = set()
    for term in parsed(site / "appendix" / "api.html").select("dl.field-list > dt"):
        if term.get_text().startswith("Raises"):
            field = term.find_next_sibling("dd")
            items = field.select(":scope > ul > li") or [field]
            named |= {name for item in items for name in item.get_text().split(" – ")[0].strip().split(", ")}
    found = {name: getattr(builtins, name, getattr(cuda_build, name, getattr(simulator, name, None))) for name in named}
    assert len(found) > 5
    exceptions = {name for name, value in found.items() if isinstance(value, type) and issubclass(value, Exception)}
    assert named - exceptions == set()


def test_the_api_reference_lists_every_public_name(site):
    from companion import functional

    anchors = _anchors(site / "appendix" / "api.html")
    public = [f"companion.{name}" for name in getattr(companion, "__all__", ())]
    public += [f"companion.functional.{name}" for name in functional.__all__]
    objects = {name: getattr(companion, name.split(".")[-1], None) for name in public}
    described = [name for name, value in objects.items() if not isinstance(value, str | types.ModuleType)]
    assert [name for name in described if name not in anchors] == []


def test_the_api_reference_leads_to_the_source(site):
    described = parsed(site / "appendix" / "api.html").select(
        "dl.py.class > dt, dl.py.function > dt, dl.py.exception > dt"
    )
    assert len(described) > 80
    without = [dt["id"] for dt in described if not dt.select("a[href*='_modules/companion'] .viewcode-link")]
    assert without == ["companion.study.symbolic.sigma"]  # a class that a call makes: no definition stands anywhere
    (link,) = (dt.select_one("a:has(.viewcode-link)") for dt in described if dt["id"] == "companion.AGLU")
    page, _, name = link["href"].partition("#")
    assert "class AGLU" in parsed((site / "appendix" / page).resolve()).find(id=name).get_text()


def test_the_api_reference_leads_to_pytorchs_documentation(site):
    soup = parsed(site / "appendix" / "api.html")
    found = {tag["href"] for tag in soup.select(f"main a[href^='{torch_pages.PLACE}']")}
    assert {torch_pages.address(name) for name in ("torch.Tensor", "torch.nn.Module", "torch.nn.Linear")} <= found
    plain = [tag.get_text() for tag in soup.select("main code") if tag.find_parent("a") is None]
    assert [name for name in plain if torch_pages.address(name) and name.startswith("torch.")] == []


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("torch.nn.Linear", "generated/torch.nn.Linear.html#torch.nn.Linear"),
        ("torch.nn.modules.module.Module", "generated/torch.nn.Module.html#torch.nn.Module"),
        ("Tensor", "tensors.html#torch.Tensor"),
        ("torch.dtype", "tensor_attributes.html#torch.dtype"),
        ("torch.func", "func.html"),
        ("torch.compile", "generated/torch.compile.html#torch.compile"),
        ("torch.nn.Linnear", None),
        ("torch.float64", None),
        ("numpy.ndarray", None),
        ("Linear", None),
    ],
)
def test_a_name_of_pytorch_has_an_address_and_no_other_has(name, page):
    assert torch_pages.address(name) == (page and torch_pages.PLACE + page)


def test_the_api_reference_does_not_repeat_what_torch_says(site):
    # a module without words of its own for `forward` would show those of nn.Module
    assert "Should be overridden by all subclasses" not in parsed(site / "appendix" / "api.html").get_text()


def test_who_is_sent_a_link_sees_a_title_a_sentence_and_a_picture(site):
    for name in ("index.html", *PAGES):
        soup = parsed(site / name)
        said = {tag["property"]: tag["content"] for tag in soup.select("meta[property^='og:']")}
        (description,) = soup.select("meta[name=description]")
        assert soup.title.get_text().strip()
        assert said["og:title"].strip()
        assert 20 < len(said["og:description"]) <= 202, name
        assert said["og:description"] == description["content"]
        assert said["og:url"] == f"{website()}/{'' if name == 'index.html' else name}"
        assert (site / said["og:image"].removeprefix(f"{website()}/")).read_bytes().startswith(b"\x89PNG")


def test_the_root_page_leads_to_the_first_page(site):
    soup = parsed(site / "index.html")
    (forward,) = soup.select("meta[http-equiv=refresh]")
    assert forward["content"] == "0; url=preface.html"
    assert soup.select_one("h1 a[href='preface.html']").get_text() == "Rethinking the Neuron"


def test_every_page_ends_with_the_version_and_what_is_new(site):
    for name in PAGES:
        foot = parsed(site / name).select_one(".neuron-version")
        assert f"Version {companion.__version__}." in foot.get_text()
        assert foot.a["href"].endswith(f"/{release_tag()}/CHANGELOG.md")
