"""What axe-core finds on a page; `test_browser` holds it to all pages, and this to planted faults."""

import pytest
from axe_playwright_python.sync_playwright import Axe

pytestmark = pytest.mark.browser

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

#: Takes out what no rule judges and axe would walk through, nine tenths of a page: what is in a formula (MathJax's) or
#: in a drawing, which is one picture, and the words of code but the first few of each look.
THIN_OUT = """() => {
  document.querySelectorAll("mjx-container, svg[role=img]").forEach(each => each.replaceChildren());
  for (const word of document.querySelectorAll("pre span[class]:not([data-look])"))
    if (word.attributes.length == 1) word.replaceWith(...word.childNodes);
}"""


class Judge(Axe):
    """axe-core in a page, where it is loaded once."""

    def __init__(self, page):
        super().__init__()
        self.page = page
        page.evaluate(self.axe_script)
        page.evaluate(MARK)
        page.evaluate(THIN_OUT)

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
        ("<svg role='img' viewBox='0 0 1 1'><path d='M0 0h1'/></svg>", 1),
        ("<pre><code><span class='k' style='color: #ccc'>faint</span> <b style='color: #000'>b</b></code></pre>", 1),
    ],
)
def test_a_planted_fault_among_many_is_found(chromium, planted, count):
    page = chromium.new_page()
    page.set_content(f"<html lang=en><title>T</title><main><h1>T</h1>{WORDS}{planted}{WORDS}</main></html>")
    found = Judge(page).grave()
    page.close()
    assert len(found) == count, found
