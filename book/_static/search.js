// The search shows pieces of pages, in which MathJax has typeset nothing: \(\lambda_1 \le 2\) becomes λ1 ≤ 2.
(() => {
  const TEX = /\\\(([\s\S]*?)\\\)|\\\[([\s\S]*?)\\\]/g;
  const ALSO = { infty: "∞", ldots: "…", dots: "…", cdots: "⋯", top: "ᵀ", mathsf: "", mathbf: "", quad: " ", qquad: " " };

  function letter(name) {
    if (name in ALSO) return ALSO[name];
    const box = document.createElement("textarea");
    box.innerHTML = `&${name};`; // HTML has TeX's names for letters and signs
    return box.value.startsWith("&") ? "" : box.value;
  }

  function readable(text) {
    return text.replace(TEX, (_, inline, display) =>
      (inline ?? display)
        .replace(/\\operatorname\*?|\\(left|right|big|Big|tfrac|text|mathrm)\b/g, "")
        .replace(/\\d?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}/g, "$1/$2")
        .replace(/\\([A-Za-z]+)\s*/g, (_, name) => letter(name))
        .replace(/\\[^A-Za-z]|[{}&_]/g, "")
        .replace(/\s+/g, " ")
        .trim(),
    );
  }

  addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return;
    const text = Search.htmlToText;
    Search.htmlToText = (page, anchor) => readable(text(page, anchor));
  });
})();
