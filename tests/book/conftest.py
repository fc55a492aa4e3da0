"""The rendered book, and a reader of it in a browser."""

import fcntl
import functools
import http.server
import os
import threading

import pytest

from book._tools.build import build


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the rendered pages, built from the sources as they are now: from nothing, once for all workers."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "book"
    folder.mkdir(exist_ok=True)
    with (folder / "one at a time").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        finished = folder / "finished"
        if not finished.exists():
            build(folder)
            finished.touch()
    return folder / "_build" / "html"


@pytest.fixture(scope="session")
def address(site):
    """The address at which this machine, and nobody else, can read the book."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("localhost", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()


def settle(page):
    """Wait until styles are what they will be: scroll timelines need a frame, changes of colour some more.

    A transition's own promise is no use: Chromium may leave it open for ever where it draws no further frame.
    """
    page.evaluate(
        """async () => {
          await document.fonts.ready;
          const moves = each => each instanceof CSSTransition && each.playState == "running";
          for (let frame = 0; frame < 2 || document.getAnimations().some(moves); frame++)
            await new Promise(requestAnimationFrame);
        }"""
    )


class Reader:
    """A page in a browser, with everything that the browser complained about and every address it wanted."""

    def __init__(self, context, address):
        self.complaints, self.foreign = [], []
        self.address = address
        self.page = context.new_page()
        self.page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.route("**/*", self._answer)

    def _answer(self, route):
        if route.request.url.startswith((self.address, "data:", "blob:")):
            route.continue_()
        else:
            self.foreign.append(route.request.url)
            route.abort()

    def open(self, name):
        """Open a page of the book and wait until its formulas are typeset."""
        self.page.goto(f"{self.address}/{name}", wait_until="networkidle")
        self.page.wait_for_function("!window.MathJax || MathJax.startup.promise.then(() => true)")
        settle(self.page)
        return self.page

    def darken(self):
        """Change to the dark theme, as the system does in the evening."""
        self._change_to("dark")

    def brighten(self):
        """Change to the light theme, as the system does in the morning."""
        self._change_to("light")

    def _change_to(self, theme):
        self.page.emulate_media(color_scheme=theme)
        self.page.wait_for_selector(f"html[data-theme={theme}]")
        settle(self.page)

    def resize(self, size):
        """Give the window another size, as a phone that is turned does."""
        self.page.set_viewport_size(size)
        settle(self.page)


@pytest.fixture
def reader(chromium, address):
    """Make a reader with a window of some size, in the light or the dark theme."""
    contexts = []

    def make(width=1280, height=900, dark=False):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        return Reader(context, address)

    yield make
    for context in contexts:
        context.close()
