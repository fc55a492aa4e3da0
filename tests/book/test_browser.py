"""What a reader sees in a browser: typeset formulas, one header, a figure that moves, on any screen."""

import gzip
import itertools
import math
import re

import numpy as np
import pytest
import torch

from companion.functional import aglu, apa, dac_linear
from companion.study.claims import ledger
from tests.book.test_accessibility import Judge
from tests.book.test_html import PAGES
from tests.cases import together

pytestmark = pytest.mark.browser

CHAPTER = "mechanisms/apa.html"
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}


def _fits_a_phone(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    size = page.evaluate("parseFloat(getComputedStyle(document.querySelector('main p')).fontSize)")
    assert size >= 15
    hidden = page.evaluate(
        """() => [...document.querySelectorAll(
          "main :is(table, pre, div.math, mjx-container[display=true], .neuron-figure)"
        )].filter(box => {
          const style = getComputedStyle(box);
          const shown = box.checkVisibility() && box.scrollWidth > box.clientWidth + 1;
          const fades = style.maskImage.includes("gradient") && parseFloat(style.getPropertyValue("--goes-on")) > 0;
          const scrolls = /auto|scroll/.test(style.overflowX) && box.tabIndex >= 0;
          return shown && !(fades && scrolls);
        }).map(box => box.outerHTML.slice(0, 100))"""
    )
    assert hidden == []  # what goes on to the right fades there, and scrolls, with the keyboard too


def _fits_a_desk(page):
    """No code, table or formula is cut, no heading outranks the one above it, figures take the room there is."""
    seen = page.evaluate(
        """() => {
          const main = document.querySelector("article.bd-article"), text = main.querySelector("p").clientWidth;
          const open = selector => [...main.querySelectorAll(selector)].filter(each => each.checkVisibility());
          const wide = selector => open(selector).map(each => each.getBoundingClientRect().width / text);
          const size = name => open(name).map(each => parseFloat(getComputedStyle(each).fontSize));
          const weight = name => open(name).map(each => parseFloat(getComputedStyle(each).fontWeight));
          return {
            cut: open("table, pre, div.math, mjx-container[display=true], .neuron-figure")
              .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.outerHTML.slice(0, 100)),
            figures: wide(".neuron-figure > svg"), moving: wide(".cell_output div[role=group]"),
            sizes: ["h1", "h2", "h3"].map(size), weights: ["h2", "h3"].map(weight),
          };
        }"""
    )
    assert seen["cut"] == []
    assert all(0.6 < width <= 1.001 for width in seen["figures"])
    assert all(width > 0.9 for width in seen["moving"])
    above, *_ = seen["sizes"]
    for below in filter(None, seen["sizes"][1:]):
        assert max(below) < min(above)
        above = below
    assert not seen["weights"][1] or max(seen["weights"][1]) <= min(seen["weights"][0])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_phone_and_desk_and_axe_finds_nothing_grave_by_day_and_night(reader, name):
    visit = reader(**PHONE)
    page = visit.open(name)
    _fits_a_phone(page)
    visit.darken()
    _fits_a_phone(page)
    visit.resize(DESKTOP)
    _fits_a_desk(page)
    assert visit.foreign == []  # it needs no network
    assert visit.complaints == []
    judge = Judge(page)
    assert judge.grave(runOnly=["color-contrast"]) == []
    visit.brighten()
    assert judge.grave() == []


def test_on_a_phone_the_first_column_of_a_wide_table_stays_and_captions_do_not_fade(reader):
    page = reader(**PHONE).open("together/which-neuron.html")
    table = page.locator("main table").first
    first, second = table.evaluate(
        """table => {
          const left = place => table.rows[1].cells[place].getBoundingClientRect().left;
          const first = left(0), second = left(1);
          table.scrollLeft = 60;
          return [first - left(0), second - left(1)];
        }"""
    )
    assert abs(first) <= 1
    assert second > 50
    clear, high = page.locator("main .neuron-figure").first.evaluate(
        """figure => [figure.style.getPropertyValue("--below"), figure.querySelector("figcaption").offsetHeight]"""
    )
    assert float(clear.removesuffix("px")) >= high > 0


@pytest.fixture
def chapter(reader):
    """The chapter with the figure of two sliders."""
    return reader().open(CHAPTER)


@pytest.mark.parametrize("name", [CHAPTER, "appendix/notation.html"])
def test_formulas_are_typeset(reader, name):
    page = reader().open(name)
    formulas = page.locator("main .math")
    assert formulas.count() > 0
    assert page.locator("main mjx-container").count() == formulas.count()
    assert page.locator("main mjx-merror").count() == 0
    fonts = page.evaluate("document.fonts.ready.then(f => [...f].filter(g => g.status == 'loaded').map(g => g.family))")
    assert any("MJX" in font for font in fonts)


def test_there_is_one_header_and_one_search(chapter):
    for size in (DESKTOP, PHONE):
        chapter.set_viewport_size(size)
        assert chapter.locator(".bd-header:visible").count() == 0
        assert chapter.locator(".bd-header-article:visible").count() == 1
        assert chapter.locator("button.search-button:visible, .search-button-field:visible").count() == 1


def _luminance(page, selector, attribute):
    """The luminance of a CSS colour, as WCAG 2.1 defines it. Where it is transparent, an ancestor's."""
    colour = page.evaluate(
        """([selector, attribute]) => {
          let element = document.querySelector(selector);
          let colour = getComputedStyle(element)[attribute];
          while (/, 0\\)$/.test(colour) && element.parentElement) {
            element = element.parentElement;
            colour = getComputedStyle(element)[attribute];
          }
          return colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
        }""",
        [selector, attribute],
    )
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_and_figures_stand_out_from_the_background(reader, dark):
    page = reader(dark=dark).open(CHAPTER)
    for selector in ("main p", "main .neuron-curve svg", "main .neuron-figure svg", "main pre"):
        ink = _luminance(page, selector, "color")
        paper = _luminance(page, selector, "backgroundColor")
        assert (ink < paper) is not dark, selector
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5, selector


def _curve(page, name):
    path = page.locator(f".neuron-curve .{name}").first.get_attribute("d")
    return [float(point.split()[1]) for point in path.removeprefix("M").split("L")]


def _move(page, name, value):
    page.locator(f".neuron-curve input[name={name}]").first.evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }",
        value,
    )


@pytest.mark.parametrize("slider", ["kappa", "lam"])
def test_the_figure_moves_with_the_keyboard(chapter, slider):
    before = _curve(chapter, "agl-curve"), _curve(chapter, "apa-curve")
    shown = chapter.locator(f".neuron-curve output.{slider}").first.inner_text()
    chapter.locator(f".neuron-curve input[name={slider}]").first.focus()
    for _ in range(40):
        chapter.keyboard.press("ArrowRight")
    assert _curve(chapter, "agl-curve") != before[0]
    assert _curve(chapter, "apa-curve") != before[1]
    assert chapter.locator(f".neuron-curve output.{slider}").first.inner_text() != shown


@together("kappa, log_lam", itertools.product([-1.0, 0.0, 1.0, 10.0], [-3.0, 0.0, 3.0]))
def test_the_figure_draws_what_the_package_computes(chapter, kappa, log_lam):
    _move(chapter, "kappa", kappa)
    _move(chapter, "lam", log_lam)
    z = torch.linspace(-5, 5, 201, dtype=torch.float64)
    for name, function in (("agl-curve", aglu), ("apa-curve", apa)):
        expected = 320 * (5 - function(z, kappa, 10.0**log_lam).numpy()) / 6.6
        drawn = np.array(_curve(chapter, name))
        np.testing.assert_allclose(drawn, expected, atol=0.006)
        assert all(map(math.isfinite, drawn))


def test_a_button_of_the_figure_sets_both_sliders(chapter):
    chapter.locator(".neuron-curve button", has_text="near ReLU").first.click()
    assert chapter.locator(".neuron-curve output.kappa").first.inner_text() == "10.00"
    assert chapter.locator(".neuron-curve output.lam").first.inner_text() == "1.00"


def test_search_finds_a_word_of_the_chapter(reader):
    visit = reader()
    page = visit.open("search.html?q=activation")
    page.wait_for_selector("#search-results li")
    assert page.locator("#search-results li").count() > 0
    assert visit.foreign == []


def _hinges(page, name):
    path = page.locator(f".neuron-hinges .{name}").first.get_attribute("d")
    return np.array([[float(number) for number in point.split()] for point in path.removeprefix("M").split("L")])


@pytest.fixture
def hinges(reader):
    """The chapter with the figure of three hinges."""
    return reader().open("mechanisms/dac.html")


@together("values", [((2.0, -3.5, 0.5, 3.0, -1.2, 0.3)), ((-4.0, 4.0, 1.0, 4.0, 4.0, -4.0))])
def test_the_hinges_follow_their_sliders(hinges, values):
    for name, value in zip(("w1", "w2", "w3", "b1", "b2", "b3"), values, strict=True):
        hinges.locator(f".neuron-hinges input[name={name}]").evaluate(
            "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
        )
    weight, bias = torch.tensor(values, dtype=torch.float64).reshape(2, 1, 3)
    x = torch.linspace(-4, 4, 81, dtype=torch.float64)
    drawn = _hinges(hinges, "sum")
    between = np.interp(x, drawn[:, 0] / 60 - 4, 4 - drawn[:, 1] / 320 * 7)
    np.testing.assert_allclose(between, dac_linear(x[:, None].expand(-1, 3), weight, bias)[:, 0], atol=0.002)


def test_a_button_sets_all_hinges(hinges):
    hinges.locator(".neuron-hinges button", has_text="ReLU").click()
    np.testing.assert_allclose(_hinges(hinges, "sum")[:, 1], 320 * (4 - np.array([0, 0, 0, 0, 4])) / 7, atol=0.006)


def test_the_ledger_can_be_filtered_and_a_link_finds_a_hidden_claim(reader):
    page = reader(**PHONE).open("appendix/claims.html")
    cards, count = page.locator(".claims article:visible"), page.locator(".claims-filter output")
    every = cards.count()
    assert every == len(ledger())
    page.select_option(".claims-filter select[name=severity]", "fatal")
    page.select_option(".claims-filter select[name=verdict]", "does not hold")
    wanted = [row.id for row in ledger() if (row.severity, row.status) == ("fatal", "does not hold")]
    assert [card.get_attribute("id") for card in cards.all()] == wanted
    assert count.inner_text() == f"{len(wanted)} of {every} claims"
    page.reload()  # the filter is in the address
    assert [card.get_attribute("id") for card in cards.all()] == wanted
    hidden = next(row.id for row in ledger() if row.severity != "fatal")
    page.evaluate("id => { location.hash = id }", hidden)
    page.locator(f"#{hidden}").wait_for(state="visible")
    assert cards.count() == every


def test_a_verdict_in_a_chapter_leads_to_its_card(reader):
    page = reader().open("mechanisms/layeract.html")
    page.locator("a[href*='appendix/claims.html#']").first.click()
    page.wait_for_url("**/appendix/claims.html#*")
    assert page.locator(".claims article:target").count() == 1


def test_a_first_visit_loads_a_megabyte_at_most(reader):
    """As a server sends it: text compressed, fonts and pictures as they are."""
    visitor, loaded = reader(**DESKTOP), {}
    visitor.page.on("response", lambda response: loaded.update({response.url: response}))
    visitor.open("preface.html")
    visitor.page.wait_for_load_state("networkidle")
    sizes = {}
    for url, response in [*loaded.items()]:
        body = response.body() if response.ok and not url.startswith("data:") else b""
        packed = url.partition("?")[0].endswith((".woff", ".woff2", ".png"))
        sizes[url] = len(body if packed else gzip.compress(body))
    assert len(sizes) > 20
    assert sum(sizes.values()) <= 1_000_000, sorted(sizes.items(), key=lambda item: -item[1])[:5]


def test_what_the_search_shows_has_no_raw_formulas(reader):
    visitor = reader(**DESKTOP)
    page = visitor.open("search.html?q=separates+weights")
    page.wait_for_function("document.querySelectorAll('#search-results li p.context').length >= 5")
    shown = page.inner_text("#search-results")
    assert "\\(" not in shown
    assert "\\[" not in shown
    for written, read in (
        (r"\lambda_1 \le \frac{1}{2}", "λ1 ≤ 1/2"),
        (r"\sigma(x) = \frac{1}{1 + e^{- x}}", "σ(x) = 1/(1 + e^(- x))"),
        (r"r = \frac{1}{\sqrt{\alpha + v}}", "r = 1/(√(α + v))"),
        (r"\frac{1}{(a)(b)}", "1/((a)(b))"),
        (r"\operatorname{relu}(b_{i,j} + z_j)", "relu(bi,j + zj)"),
        (r"\frac{\tilde{b}_{i}}{\left|{z}\right|}", "(bi)/(|z|)"),
    ):
        shown = page.evaluate("text => Search.htmlToText(`<div role='main'>${text}</div>`)", rf"\({written}\)")
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", read)


def test_icons_are_drawn_from_fonts_alone(reader):
    page = reader(**DESKTOP).open(CHAPTER)
    assert page.evaluate("getComputedStyle(document.querySelector('.theme-switch'), '::before').fontFamily").startswith(
        '"Font Aw'
    )
    assert page.evaluate("document.querySelectorAll('svg.svg-inline--fa').length") == 0
