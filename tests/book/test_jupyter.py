"""The copies in a JupyterLab, as a reader opens them who came through conda, a hub or the download button."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import nbformat
import pytest

from book._tools import glued, plain
from book._tools.places import BOOK, ROOT, notebooks

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Numbers in prose, folded cells and a figure that moves; formulas with numbers, links to them, figures, exercises.
OPENED = ("apa", "apa-derivation")
RUN = "apa-derivation"

#: In seconds, on a machine that has much else to do.
START, RENDER, EXECUTE = 120, 120, 240

#: All cells are on the page, also those far below; and JupyterLab asks nobody for news.
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}

#: All cells are there and shown, and no dollar outside code is left.
TYPESET = """cells => {
  const dollar = text => {
    const prose = text.cloneNode(true);
    prose.querySelectorAll("code").forEach(each => each.remove());
    return prose.textContent.includes("$");
  };
  const texts = [...document.querySelectorAll(".jp-Notebook .jp-MarkdownCell .jp-RenderedMarkdown")];
  const shown = texts.length === document.querySelectorAll(".jp-Notebook .jp-MarkdownCell").length;
  const there = document.querySelectorAll(".jp-Notebook .jp-Cell").length === cells;
  return there && shown && texts.every(text => text.textContent.trim() && !dollar(text));
}"""

#: There is a kernel to run cells in: the indicator on the page says "idle" before, and cells would be lost.
CONNECTED = """() => {
  const kernel = jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
  return kernel?.connectionStatus === "connected" && kernel.status === "idle";
}"""

#: Every cell with code in it has been run.
DONE = """() => jupyterapp.shell.currentWidget.content.widgets.every(
  cell => cell.model.type !== "code" || !cell.model.sharedModel.source.trim() || cell.model.executionCount)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Whatever JupyterLab reads and writes; the copies are in it, trusted as `make notebooks` leaves them."""
    home = tmp_path_factory.mktemp("jupyter")
    for name, settings in SETTINGS.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "notebooks", lambda: [path for path in notebooks() if path.stem in OPENED])
        patch.setattr(sys, "argv", ["plain", "--out", str(home / "notebooks")])
        patch.setenv("JUPYTER_DATA_DIR", str(home / "data"))
        plain.main()
    return home


@pytest.fixture(scope="module")
def lab(folder):
    """The address of a JupyterLab that ends with the tests."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    address = f"http://localhost:{port}"
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{name}_DIR": str(folder / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    own |= {"IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder / "notebooks",
        "ServerApp.allow_root": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "LabApp.extension_manager": "readonly",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", *(f"--{key}={options[key]}" for key in options)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command, env=os.environ | own, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        ) as server,
    ):
        try:
            _wait_for(address, server)
            yield address
        except TimeoutError:
            pytest.fail((folder / "log").read_text(encoding="utf-8"))
        finally:
            _end(server)


def _wait_for(address, server):
    until = time.monotonic() + START
    while time.monotonic() < until and server.poll() is None:
        try:
            with urlopen(f"{address}/api/status", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError


def _end(server):
    """The server ends its kernels; after half a minute all that it started is ended."""
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)


@pytest.fixture
def open_copy(chromium, lab):
    """Open a copy and wait until its text is shown and its formulas are typeset. Nothing may be asked of others."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * RENDER)
    foreign = []

    def answer(route):
        if route.request.url.startswith((lab, "data:", "blob:")):
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    def make(name, cells):
        page = context.new_page()
        page.route("**/*", answer)
        page.goto(f"{lab}/lab/tree/mechanisms/{name}.ipynb?reset")
        page.wait_for_function(TYPESET, arg=cells)
        return page

    yield make
    context.close()
    assert foreign == []


def copy_of(folder, name):
    return nbformat.read(folder / "notebooks" / "mechanisms" / f"{name}.ipynb", as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", OPENED)
def test_jupyter_shows_numbers_words_figures_and_folded_cells(open_copy, folder, name):
    copy = copy_of(folder, name)
    page = open_copy(name, len(copy.cells))
    page.locator(".jp-Notebook mjx-container").nth(10).wait_for(state="attached")
    assert page.locator(".jp-Notebook mjx-merror").count() == 0

    text = " ".join(" ".join(page.locator(".jp-Notebook .jp-RenderedMarkdown").all_text_contents()).split())
    assert re.findall(r"\{[a-z][\w:-]*\}|:::|\$\$|\(eq-[^)]*\)=|\{\{", text) == []
    keys = re.findall(r"^@\w+\{(\w+),", (BOOK / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
    original = nbformat.read(BOOK / "mechanisms" / f"{name}.ipynb", as_version=4)
    made = dict(glued.made(original))
    names = [each for each in made if "_" in each]
    assert [each for each in keys + names if re.search(rf"\b{each}\b", text)] == []
    uses = [use for use in glued._uses(original) if use["name"] in made]
    values = [glued.inserted(made[use["name"]], use["form"] or "s") for use in uses]
    assert [value for value in values if value not in text] == []

    drawn = sum(output.get("data", {}).get("text/html", "").count('<svg role="img"') for output in outputs(copy))
    assert page.locator(".jp-Notebook .jp-CodeCell svg[role=img]").count() == drawn > 0

    for cell, shown in zip(code(copy), page.locator(".jp-Notebook .jp-CodeCell").all(), strict=True):
        folded = cell.metadata.get("jupyter", {})
        line = shown.locator(".jp-InputPlaceholder")
        assert line.count() == folded.get("source_hidden", False)
        if folded.get("source_hidden"):
            assert cell.source.splitlines()[0] in line.text_content()
            assert not shown.locator(".jp-InputArea").count()
        assert shown.locator(".jp-OutputPlaceholder").count() == folded.get("outputs_hidden", False)


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


def test_a_chapter_runs_in_jupyter_from_top_to_bottom(open_copy, folder):
    page = open_copy(RUN, len(copy_of(folder, RUN).cells))
    page.wait_for_function(CONNECTED, timeout=1000 * START)
    for command in ("notebook:clear-all-cell-outputs", "notebook:run-all-cells"):
        page.wait_for_function(f"jupyterapp.commands.execute('{command}').then(() => true)", timeout=1000 * EXECUTE)
    page.wait_for_function(DONE, timeout=1000 * EXECUTE)
    page.wait_for_function("jupyterapp.commands.execute('docmanager:save').then(() => true)", timeout=1000 * EXECUTE)
    done = copy_of(folder, RUN)
    assert [output.evalue for output in outputs(done) if output.output_type == "error"] == []
    assert [cell.execution_count for cell in code(done)] == [*range(1, len(code(done)) + 1)]
    assert len(outputs(done)) > 5
