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

  const one = (term) => (/^\s*(\\?[\p{L}\d.]+(_.)?|\([^()]*\))\s*$/u.test(term) ? term.trim() : `(${term.trim()})`);

  // Fractions, roots and powers in one line, from the innermost braces outwards.
  function flat(formula) {
    const shorter = formula
      .replace(/\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}/g, (_, above, below) => ` ${one(above)}/${one(below)} `)
      .replace(/\\sqrt\s*\{([^{}]*)\}/g, (_, under) => ` √${one(under)} `)
      .replace(/\^\s*\{([^{}]*)\}/g, (_, power) => `^${one(power)} `)
      .replace(/(?:_|\\(?:tilde|hat|bar|overline|mathbf|mathsf))\s*\{([^{}]*)\}/g, "$1 ")
      .replace(/(^|[^\w}])\{([^{}]*)\}/g, "$1$2");
    return shorter === formula ? formula : flat(shorter);
  }

  function readable(text) {
    return text.replace(TEX, (_, inline, display) =>
      flat((inline ?? display).replace(/\\operatorname\*?|\\(left|right|big|Big|text|mathrm)\b/g, ""))
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
