"""Sphinx extension: what the book's pages need and no setting gives.

- A page says ``{{ repository }}`` where the address of the repository belongs, in code blocks too, and ``{{ arenas }}``
  where the picture of all finished arenas does.
- Jupyter Book puts Thebe's scripts on every page. The book does not use Thebe (its servers are too small for
  PyTorch), and the scripts fail with an error in the reader's browser.
- The book's version is that of the package.
- The address of a formula stays when it loses its number: ``#equation-eq-apa-aglu`` with one and without.
- Below an exercise is what it takes to answer it in the browser, or how to run what has to be written.
"""

from __future__ import annotations

import html
import re
import sys
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.application import Sphinx

import companion
from book._tools import answers
from companion.study import exercises
from companion.study.together import figures


def _set_version(_app: Sphinx, config: Any) -> None:
    config.version = config.release = companion.__version__


def _insert(app: Sphinx, _docname: str, source: list[str]) -> None:
    address = app.config.html_theme_options["repository_url"]
    source[0] = source[0].replace("{{ repository }}", address)
    if "{{ arenas }}" in source[0]:
        source[0] = source[0].replace("{{ arenas }}", figures.arenas().html)


def _remove_thebe(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{script.filename} {script.attributes.get('body')}".lower()
    ]


def _keep_addresses(_app: Sphinx, document: Any) -> None:
    for formula in document.findall(lambda node: node.tagname == "math_block"):
        formula["ids"] += [f"equation-{name}" for name in formula["ids"] if name.startswith("eq-")]


def _let_answer(app: Sphinx, document: Any) -> None:
    """Exercise 2 of the page ``apa`` is "apa-2". Where a page is no chapter, a class of the box names the exercise."""
    known, page = exercises.exercises(), app.env.docname
    for box in document.findall(lambda node: isinstance(node, nodes.admonition) and "exercise" in node["classes"]):
        number = re.match(r"Exercise (\d+)", box[0].astext())
        names = [*box["classes"], f"{page.rpartition('/')[2]}-{number[1]}" if number else ""]
        for exercise in (known[name] for name in names if name in known):
            source = sys.modules[exercise.reference.__module__].__file__
            app.env.note_dependency(str(source))  # when the exercise changes, the page is made again
            table = answers.table(exercise)
            below = _how_to_run(app.config.html_theme_options, page) if table is None else answers.place(table)
            box += nodes.raw("", below, format="html")


def _how_to_run(theme: dict[str, Any], page: str) -> str:
    up = "../" * page.count("/")
    where = theme["repository_url"].partition("github.com")[2]
    notebook = f"{theme['repository_branch']}/{theme['path_to_docs']}/{page}.ipynb"
    colab = f"{theme['launch_buttons']['colab_url']}/github{where}/blob/{notebook}"
    return f"""<details class="neuron-run"><summary>Write and run it</summary><ul>
<li><a href="{html.escape(colab)}">In Colab</a>, with nothing to install: run the first cell of the copy that opens,
then the cells down to this exercise.</li>
<li><a href="{up}preface.html#run">On your own machine</a>: the preface has the commands, and the chapter is
<a href="{up}_sources/{page}.ipynb">this notebook</a>.</li>
</ul></details>"""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("config-inited", _set_version)
    app.connect("source-read", _insert)
    app.connect("doctree-read", _keep_addresses)
    app.connect("doctree-read", _let_answer)
    app.connect("html-page-context", _remove_thebe, priority=900)
    return {"parallel_read_safe": True}
