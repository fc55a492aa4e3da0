// What is wider than its box scrolls in it. With the keyboard, too: then it has to be able to get the focus.
(() => {
  const SCROLL = ".bd-article table, .bd-article pre, .bd-article div.math, .bd-article mjx-container[display=true], .bd-article .neuron-figure";

  function giveFocus() {
    for (const box of document.querySelectorAll(SCROLL)) {
      const scrolls = box.scrollWidth > box.clientWidth + 1;
      if (scrolls && !box.hasAttribute("tabindex")) {
        box.tabIndex = 0;
        box.dataset.scrolls = "";
      } else if (!scrolls && "scrolls" in box.dataset) {
        box.removeAttribute("tabindex");
        delete box.dataset.scrolls;
      }
      if (box.rows) {
        // Its first column stays, if that leaves room for the others.
        box.classList.toggle("first-stays", scrolls && box.rows[0].cells[0].offsetWidth < 0.4 * box.clientWidth);
      }
      const caption = box.querySelector(":scope > figcaption");
      if (caption?.offsetHeight) {
        const below = box.getBoundingClientRect().bottom - caption.getBoundingClientRect().top;
        box.style.setProperty("--below", `${below}px`);
      }
    }
  }

  // A cell with whole sentences in it stays wide enough to read on a phone; the table scrolls instead.
  function keepWide() {
    for (const cell of document.querySelectorAll(".bd-article td")) {
      cell.classList.toggle("sentences", cell.textContent.length > 60);
    }
  }

  addEventListener("load", () => {
    keepWide();
    giveFocus();
    window.MathJax?.startup?.promise?.then(giveFocus); // formulas have their width only then
  });
  addEventListener("resize", giveFocus);
  document.addEventListener("toggle", giveFocus, true); // something folded was opened
})();
