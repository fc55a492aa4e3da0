"""Sphinx extension: what the book's pages need and no setting gives.

- A page says ``{{ repository }}`` where the address of the repository belongs, in code blocks too, ``{{ arenas }}``
  where the picture of all finished arenas does, and ``{{ shortly }}`` for the table of who is first in them. It is read
  again when a result changes.
- Jupyter Book puts Thebe's scripts on every page. The book does not use Thebe (its servers are too small for
  PyTorch), and the scripts fail with an error in the reader's browser.
- The book's version is that of the package, and stands at the foot of each page.
- Who is sent a link sees a title, a sentence and a picture; the root page has them, too, and leads to the first one.
- The theme draws its icons twice, from fonts and by a script of half a megabyte: the script goes.
- The address of a formula stays when it loses its number: ``#equation-eq-apa-aglu`` with one and without.
- What the API reference and the recipes call by a name of PyTorch leads to PyTorch's documentation; where they name a
  chapter by its file, to the chapter.
- A full stop or comma behind a formula stays with it at the end of a line.
- Below an exercise is what it takes to answer it in the browser, or how to run what has to be written.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.application import Sphinx

import companion
from book._tools import answers, torch_pages
from book._tools.places import ROOT
from companion.study import exercises
from companion.study.together import figures

_LONGEST_DESCRIPTION = 200
"""Letters; what shows a link cuts off more."""

_ICONS_SCRIPT = re.compile(r'\s*<script[^>]* src="[^"]*/scripts/fontawesome\.js[^"]*"></script>')


def _set_version(_app: Sphinx, config: Any) -> None:
    config.version = config.release = companion.__version__
    changes = f"{config.html_theme_options['repository_url']}/blob/v{companion.__version__}/CHANGELOG.md"
    foot = f'Version {companion.__version__}. <a href="{html.escape(changes)}">What is new</a>'
    config.html_theme_options["extra_footer"] = f'<p class="neuron-version">{foot}</p>'


def _describe(app: Sphinx, page: str, _template: str, context: dict[str, Any], document: Any) -> None:
    card = _card(app.config, context.get("title", ""), _opening(document), f"{page}.html")
    context["metatags"] = context.get("metatags", "") + card


def _opening(document: Any) -> str:
    """The first paragraph of a page without a formula, as far as there is room; of a page that has none, the book's."""
    paragraphs = () if document is None else document.findall(nodes.paragraph)
    alone = (each for each in paragraphs if isinstance(each.parent, nodes.section))  # no cell of a table
    plain = (paragraph.astext() for paragraph in alone if not [*paragraph.findall(nodes.math)])
    text = " ".join(next(plain, (companion.__doc__ or "").partition("\n")[0]).split())
    if len(text) <= _LONGEST_DESCRIPTION:
        return text
    return text[:_LONGEST_DESCRIPTION].rpartition(" ")[0] + " …"


def _card(config: Any, title: str, description: str, page: str) -> str:
    """What stands in a page's head for those who show links to it."""
    properties = {
        "og:type": "website",
        "og:site_name": config.project,
        "og:title": html.unescape(re.sub(r"<[^>]*>", "", title)) or config.project,
        "og:description": description,
        "og:url": config.html_baseurl + page,
        "og:image": f"{config.html_baseurl}_static/card.png",
        "og:image:alt": "A neuron: inputs, weights, a sum with its bias, a curve",
        "og:image:width": "1200",
        "og:image:height": "630",
    }
    names = {"description": description, "twitter:card": "summary_large_image"}
    tags = [f'<meta property="{name}" content="{html.escape(value)}" />' for name, value in properties.items()]
    tags += [f'<meta name="{name}" content="{html.escape(value)}" />' for name, value in names.items()]
    return "\n".join(["", *tags, ""])


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Write the root page, and take the theme's second way of drawing icons out of all."""
    if error is not None or app.builder.format != "html":
        return
    pages = Path(app.outdir)
    for page in pages.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if _ICONS_SCRIPT.search(text):
            page.write_text(_ICONS_SCRIPT.sub("", text), encoding="utf-8")
    (pages / "_static" / "scripts" / "fontawesome.js").unlink(missing_ok=True)
    first, title = f"{app.config.root_doc}.html", html.escape(app.config.project)
    opening = _opening(None)
    (pages / "index.html").write_text(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>{title}</title>{_card(app.config, "", opening, "")}
<link rel="canonical" href="{app.config.html_baseurl}{first}" />
<link rel="icon" href="_static/favicon.svg" />
<meta http-equiv="refresh" content="0; url={first}" />
</head>
<body><h1><a href="{first}">{title}</a></h1><p>{html.escape(opening)}</p></body>
</html>
""",
        encoding="utf-8",
    )


def _insert(app: Sphinx, _docname: str, source: list[str]) -> None:
    address = app.config.html_theme_options["repository_url"]
    source[0] = source[0].replace("{{ repository }}", address)
    made = {"{{ arenas }}": lambda: figures.arenas().html, "{{ shortly }}": figures.shortly}
    for name, make in made.items():
        if name in source[0]:
            source[0] = source[0].replace(name, make())
            for result in sorted((ROOT / "data" / "results").glob("together-*-laptop.json")):
                app.env.note_dependency(str(result))


def _remove_thebe(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{script.filename} {script.attributes.get('body')}".lower()
    ]


def _keep_addresses(_app: Sphinx, document: Any) -> None:
    for formula in document.findall(lambda node: node.tagname == "math_block"):
        formula["ids"] += [f"equation-{name}" for name in formula["ids"] if name.startswith("eq-")]


def _lead_to_torch(_app: Sphinx, _env: Any, node: Any, inside: Any) -> Any:
    """What Sphinx does not find in the book: a type in the API reference may be one of torch's."""
    address = torch_pages.address(node.get("reftarget", "")) if node.get("refdomain") == "py" else None
    return None if address is None else nodes.reference("", "", inside, refuri=address, internal=False)


def _link_names(app: Sphinx, document: Any) -> None:
    if app.env.docname not in ("appendix/api", "appendix/recipes"):
        return
    for name in list(document.findall(nodes.literal)):
        if isinstance(name.parent, nodes.reference) or "xref" in name["classes"]:  # a link, or to become one
            continue
        text = name.astext()
        chapter = re.fullmatch(r"book/((?:ground|mechanisms|together|appendix)/[\w-]+)", text)
        if chapter and (Path(app.srcdir) / f"{chapter[1]}.ipynb").exists():
            target = app.builder.get_relative_uri(app.env.docname, chapter[1])
            name.replace_self(nodes.reference("", "", name.deepcopy(), refuri=target, internal=True))
        elif text.startswith("torch.") and (address := torch_pages.address(text)):
            name.replace_self(nodes.reference("", "", name.deepcopy(), refuri=address, internal=False))


def _keep_together(_app: Sphinx, document: Any) -> None:
    for formula in list(document.findall(nodes.math)):
        behind = formula.next_node(descend=False, siblings=True)
        if not isinstance(behind, nodes.Text) or not (mark := re.match(r"[.,;:?!)]+", behind)):
            continue
        at = formula.parent.index(formula)
        together = nodes.inline("", "", formula.deepcopy(), nodes.Text(mark[0]), classes=["formula-and-mark"])
        formula.parent[at : at + 2] = [together, nodes.Text(behind[mark.end() :])]


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
<li><a href="{up}appendix/running.html">On your own machine</a>: that page has the commands, and the chapter is
<a href="{up}_sources/{page}.ipynb">this notebook</a>.</li>
</ul></details>"""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("config-inited", _set_version)
    app.connect("source-read", _insert)
    app.connect("doctree-read", _keep_addresses)
    app.connect("doctree-read", _let_answer)
    app.connect("doctree-read", _link_names)
    app.connect("doctree-read", _keep_together)
    app.connect("missing-reference", _lead_to_torch)
    app.connect("html-page-context", _describe)
    app.connect("html-page-context", _remove_thebe, priority=900)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True}
