"""What axe-core finds on the pages: nothing that is serious, but for what the theme does."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.book.test_html import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

GRAVE = ("serious", "critical")

#: Not looked at. The insides of formulas are MathJax's, and many; the others have faults that are not ours.
LEFT_OUT = [
    ["mjx-container"],
    [".bd-sidebar-primary .toctree-toggle"],  # sphinx-book-theme: the arrow that unfolds a chapter has no name
    [".bd-sidebar-primary summary"],
    [".citation-list"],  # docutils: a list of entries without list items
]


def _grave(page, **options):
    found = Axe().run(page, context={"exclude": LEFT_OUT}, options={"resultTypes": ["violations"], **options})
    return [
        f"{each['id']}: {node['target']} {node['html'][:120]}"
        for each in found.response["violations"]
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_grave_by_day_and_no_faint_colour_by_night(reader, name):
    visit = reader()
    page = visit.open(name)
    assert _grave(page) == []
    visit.darken()
    assert _grave(page, runOnly=["color-contrast"]) == []
