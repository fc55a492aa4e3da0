"""A figure that moves, in a browser and as text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np


def svg(page: str) -> dict[str, ElementTree.Element]:
    """The elements of a drawing that have a class, by it; of one class "face", "face 2", "face 3", …"""
    root = ElementTree.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])
    found: dict[str, ElementTree.Element] = {}
    for element in root.iter():
        if name := element.get("class"):
            many = sum(each.partition(" ")[0] == name for each in found)
            found[f"{name} {many + 1}" if many else name] = element
    return found


def numbers(text: str) -> np.ndarray:
    return np.array([float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)])


def points(element: ElementTree.Element) -> np.ndarray:
    return numbers(element.get("transform") or element.get("d")).reshape(-1, 2)


def said(page: str) -> str:
    return re.search(r'<p class="said"[^>]*>([^<]*)</p>', page)[1].replace("−", "-")


class Figure:
    """A figure in a browser, without the network."""

    def __init__(self, chromium):
        self.page = chromium.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.complaints.append(request.url))

    def show(self, picture):
        self.page.set_content(picture.html)

    def move(self, **values):
        for name, value in values.items():
            self.page.locator(f"input[name={name}]").evaluate(
                "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
            )

    def press(self, button):
        self.page.get_by_role("button", name=button, exact=True).click()

    def now(self) -> str:
        assert self.complaints == []
        return self.page.evaluate(
            "new XMLSerializer().serializeToString(document.querySelector('svg')).replace(/ xmlns=\"[^\"]*\"/, '')"
            " + document.querySelector('.said').outerHTML"
        )
