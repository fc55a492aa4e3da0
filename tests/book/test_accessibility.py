"""What axe-core finds on the pages: nothing that is serious, but for what the theme does."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.book.test_html import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

GRAVE = ("serious", "critical")

#: Not looked at: faults that are not ours.
LEFT_OUT = [
    ["mjx-container"],  # MathJax: formulas
    [".bd-sidebar-primary .toctree-toggle"],  # sphinx-book-theme: the arrow that unfolds a chapter has no name
    [".bd-sidebar-primary summary"],
    [".citation-list"],  # docutils: a list of entries without list items
]

#: Marks the first few elements of each look: what is the same in whatever decides how well text stands out. A page has
#: ten thousand pieces of text in fifty looks, and axe takes milliseconds for the contrast of each.
MARK = """() => {
  const seen = new Map();
  const own = ["color", "webkitTextFillColor", "webkitTextStrokeWidth", "fontSize", "fontWeight", "textShadow"];
  const under = ["backgroundColor", "backgroundImage", "opacity", "filter", "mixBlendMode"];
  const behind = new Map();  // of an element: what it and its ancestors paint, and the boxes that lie over others
  const paints = element => {
    if (!element) return "";
    if (!behind.has(element)) {
      const style = getComputedStyle(element), before = paints(element.parentElement);
      const paint = under.map(name => style[name]).join();
      const box = /absolute|fixed|sticky/.test(style.position) ? ` box ${behind.size}` : "";
      behind.set(element, paint === "rgba(0, 0, 0, 0),none,1,none,normal" ? before + box : `${before}|${paint}${box}`);
    }
    return behind.get(element);
  };
  document.querySelectorAll("[data-look]").forEach(element => element.removeAttribute("data-look"));
  for (const element of document.body.querySelectorAll("*")) {
    const field = element.matches("input, select, textarea");
    const text = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join("");
    if (!(text || field) || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const looks = own.map(name => style[name]).join();
    const look = [element.tagName, element.className, text.length === 1, looks, paints(element)].join();
    const count = seen.get(look) ?? 0;
    seen.set(look, count + 1);
    if (count < 5) element.setAttribute("data-look", "");
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: "[data-look]" }] });
}"""


class Judge(Axe):
    """axe-core in a page, where it is loaded once."""

    def __init__(self, page):
        super().__init__()
        self.page = page
        # what is in a formula is MathJax's; axe would walk through all of it, a third of a page, and leave it out
        page.evaluate("document.querySelectorAll('mjx-container').forEach(each => each.replaceChildren())")
        page.evaluate(self.axe_script)

    def grave(self, **options):
        """What is serious: every rule on every element, but contrast on the first few of each look."""
        self.page.evaluate(MARK)
        given = {"exclude": LEFT_OUT}, {"resultTypes": ["violations"], **options}
        violations = self.page.evaluate("given => axe.run(...given).then(found => found.violations)", given)
        return [
            f"{each['id']}: {node['target']} {node['html'][:120]}"
            for each in violations
            if each["impact"] in GRAVE
            for node in each["nodes"]
        ]


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_grave_by_day_and_no_faint_colour_by_night(reader, name):
    visit = reader()
    judge = Judge(visit.open(name))
    assert judge.grave() == []
    visit.darken()
    assert judge.grave(runOnly=["color-contrast"]) == []


WORDS = "".join(f"<p>Paragraph {number}</p>" for number in range(20))


@pytest.mark.parametrize(
    ("planted", "count"),
    [
        ("<p>Plain</p>", 0),
        ("<p style='color: #ccc'>Faint</p>", 1),
        ("<p><i style='color: #aaa'>=</i><i style='color: #aaa'>faint</i></p>", 1),
        ("<div style='background: #333'><p>On dark</p></div>", 1),
        ("<p style='opacity: 0.3'>See-through</p>", 1),
        ("<div style='opacity: 0.3'><p>In what is see-through</p></div>", 1),
        ("<div style='position: absolute; top: 0; color: #ccc'>Over others</div>", 1),
        ("<p style='display: none; color: #ccc'>Hidden</p>", 0),
        ("<input aria-label='field' value='faint' style='color: #ccc'>", 1),
        ("<button></button>", 1),
    ],
)
def test_a_planted_fault_among_many_is_found(chromium, planted, count):
    page = chromium.new_page()
    page.set_content(f"<html lang=en><title>T</title><main><h1>T</h1>{WORDS}{planted}{WORDS}</main></html>")
    found = Judge(page).grave()
    page.close()
    assert len(found) == count, found
