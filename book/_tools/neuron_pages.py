"""Sphinx extension: what the book's pages need and no setting gives.

- A page says ``{{ repository }}`` where the repository's address belongs, in code blocks too.
- Jupyter Book puts Thebe's scripts on every page. The book does not use Thebe (its servers are too small for
  PyTorch), and the scripts fail with an error in the reader's browser.
- The book's version is that of the package.
- The address of a formula stays when it loses its number: ``#equation-eq-apa-aglu`` with one and without.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

import companion


def _set_version(_app: Sphinx, config: Any) -> None:
    config.version = config.release = companion.__version__


def _insert_address(app: Sphinx, _docname: str, source: list[str]) -> None:
    address = app.config.html_theme_options["repository_url"]
    source[0] = source[0].replace("{{ repository }}", address)


def _remove_thebe(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{script.filename} {script.attributes.get('body')}".lower()
    ]


def _keep_addresses(_app: Sphinx, document: Any) -> None:
    for formula in document.findall(lambda node: node.tagname == "math_block"):
        formula["ids"] += [f"equation-{name}" for name in formula["ids"] if name.startswith("eq-")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("config-inited", _set_version)
    app.connect("source-read", _insert_address)
    app.connect("doctree-read", _keep_addresses)
    app.connect("html-page-context", _remove_thebe, priority=900)
    return {"parallel_read_safe": True}
