// A line to answer in, below each exercise whose answer is a number or a short formula. What is said of an answer comes
// from book/_tools/answers.py, which asked `check` when the book was built. Without JavaScript nothing shows.
(() => {
  const FUNCTIONS = {
    sqrt: [1, Math.sqrt], exp: [1, Math.exp], log: [1, Math.log], ln: [1, Math.log], abs: [1, Math.abs],
    sin: [1, Math.sin], cos: [1, Math.cos], tanh: [1, Math.tanh],
    min: [Infinity, Math.min], max: [Infinity, Math.max],
  };
  const CONSTANTS = { pi: Math.PI, e: Math.E };
  // As it stands in the book, or as one types it.
  const OTHER = {
    "−": "-", "–": "-", "×": "*", "·": "*", "²": "^2", "³": "^3", "√": "sqrt", "π": "pi", "κ": "kappa", "λ": "lam",
    "σ": "sigma", "**": "^", "lambda": "lam", "Abs": "abs", "Min": "min", "Max": "max",
  };

  // --- what is typed: a sum of products of powers --------------------------------------------------------------------

  class Unreadable extends Error {}

  function tokens(text) {
    const grouped = /^\s*[-+−–]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*$/.test(text) ? text.replaceAll(",", "") : text;
    const plain = grouped
      .replace(/\b(?:math|torch|np|numpy|sympy)\.(?=[a-z])/gi, "")
      .replace(/\*\*|[−–×·²³√πκλσ]|\b(?:lambda|Abs|Min|Max)\b/g, (found) => ` ${OTHER[found]} `);
    const found = plain.match(/(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[\p{L}_][\p{L}\d_]*|\S/gu);
    if (!found) throw new Unreadable("No answer yet.");
    return found;
  }

  // A function of the variables' values. Throws what cannot be read.
  function formula(text, names) {
    const left = tokens(text);
    const take = (...allowed) => (allowed.includes(left[0]) ? left.shift() : undefined);
    const close = () => {
      if (!take(")")) throw new Unreadable(left.length ? `A bracket is not closed before ${left[0]}.` : "A bracket is not closed.");
    };

    function sum() {
      let value = product();
      for (let sign; (sign = take("+", "-")); ) {
        const [one, other] = [value, product()];
        value = sign === "+" ? (at) => one(at) + other(at) : (at) => one(at) - other(at);
      }
      return value;
    }
    function product() {
      let value = signed();
      for (let sign; (sign = take("*", "/")); ) {
        const [one, other] = [value, signed()];
        value = sign === "*" ? (at) => one(at) * other(at) : (at) => one(at) / other(at);
      }
      return value;
    }
    function signed() {
      const sign = take("+", "-");
      if (!sign) return power();
      const value = signed();
      return sign === "-" ? (at) => -value(at) : value;
    }
    function power() {
      const base = atom();
      if (!take("^")) return base;
      const exponent = signed(); // 2^-1, and 2^3^2 from the right
      return (at) => base(at) ** exponent(at);
    }
    function atom() {
      const token = left.shift();
      if (token === undefined) throw new Unreadable("Something is missing at the end.");
      if (token === "(") {
        const value = sum();
        close();
        return value;
      }
      if (/^[.\d]/.test(token) && token !== ".") return () => Number(token);
      if (names.includes(token)) return (at) => at[names.indexOf(token)];
      if (Object.hasOwn(CONSTANTS, token)) return () => CONSTANTS[token];
      if (Object.hasOwn(FUNCTIONS, token)) return call(token);
      if (/^\p{L}/u.test(token) && take("(")) throw new Unreadable(`The function ${token} is not known here; known are ${Object.keys(FUNCTIONS).join(", ")}.`);
      if (/^\p{L}/u.test(token)) throw new Unreadable(`The formula has the symbol ${token}; it may have ${names.join(", ") || "none"}.`);
      throw new Unreadable(`${token} cannot be read where it stands.`);
    }
    function call(name) {
      if (!take("(")) throw new Unreadable(`A bracket is missing behind ${name}.`);
      const given = [sum()];
      while (take(",")) given.push(sum());
      close();
      const [most, apply] = FUNCTIONS[name];
      if (given.length > most) throw new Unreadable(`${name} takes one number.`);
      return (at) => apply(...given.map((each) => each(at)));
    }

    const value = sum();
    if (left[0] === ",") throw new Unreadable("A comma cannot stand here: decimals have a point, as in 0.5.");
    if (left[0] === ")") throw new Unreadable("A bracket is closed that was not opened.");
    if (/^[\p{L}\d.(]/u.test(left[0] ?? "")) throw new Unreadable(`An operation is missing before ${left[0]}; a product has a *.`);
    if (left.length) throw new Unreadable(`${left[0]} cannot be read where it stands.`);
    return value;
  }

  // --- what is said of it: as companion.study.exercises does ---------------------------------------------------------------

  const finite = (values) => values.filter(Number.isFinite);
  function equal(found, wanted, tolerance) {
    const scale = Math.max(0, ...finite(wanted).map(Math.abs)) || 1;
    return found.every((one, at) => Object.is(one, wanted[at]) || one === wanted[at] || Math.abs(one - wanted[at]) <= tolerance * scale);
  }
  const equalAtEach = (found, wanted, tolerance) => found.map((one, at) => equal([one], [wanted[at]], tolerance));

  function verdict(text, { names, points, tolerance, answers }) {
    let value;
    try {
      value = formula(text, names);
    } catch (error) {
      if (error instanceof Unreadable) return error.message;
      throw error;
    }
    const found = points.map((point) => value(point));
    for (const [words, values] of answers) {
      if (equalAtEach(found, values.map(Number), tolerance).every(Boolean)) return words;
    }
    return wrong(found, answers[0][1].map(Number), names, points, tolerance);
  }

  function wrong(found, wanted, names, points, tolerance) {
    const where = (chosen) => place(chosen, names, points);
    const lost = found.map(Number.isNaN);
    if (lost.some(Boolean)) return `It is NaN${where(lost)}.`;
    const near = "It is near and not exact: was something rounded or approximated?";
    const close = equal(found, wanted, 1e-2);
    if (!names.length) return close ? near : `It is too ${found[0] > wanted[0] ? "large" : "small"}.`;
    const dot = (one, other) => one.reduce((sum, each, at) => sum + each * other[at], 0);
    const factor = dot(found, wanted) / dot(wanted, wanted);
    if (!close && equal(found, wanted.map((each) => factor * each), tolerance)) return "It is right up to a constant factor.";
    const difference = found.map((each, at) => each - wanted[at]);
    const mean = difference.reduce((sum, each) => sum + each) / points.length;
    if (equal(difference, difference.map(() => mean), tolerance)) return "It is off by the same amount everywhere.";
    const right = equalAtEach(found, wanted, tolerance);
    if (right.some(Boolean)) return `It is right${where(right)}, and wrong elsewhere.`;
    if (close) return near;
    const almost = equalAtEach(found, wanted, 1e-2);
    if (almost.some(Boolean)) return `It is near, not exact,${where(almost)}, and wrong elsewhere.`;
    return "It is wrong at every point tried.";
  }

  // Some of the points in words: where a variable has one value, if that tells them from the others.
  function place(chosen, names, points) {
    if (chosen.every(Boolean)) return points.length === 1 ? "" : " at every point tried";
    const told = names.flatMap((name, at) => {
      const values = new Set(points.filter((_, index) => chosen[index]).map((point) => point[at]));
      const others = points.filter((_, index) => !chosen[index]).map((point) => point[at]);
      const [only] = values;
      return values.size === 1 && !others.includes(only) ? [`${name} is ${Number(only.toPrecision(6))}`] : [];
    });
    if (told.length) return ` where ${told.join(" and ")}`;
    return ` at ${chosen.filter(Boolean).length} of the ${points.length} points tried`;
  }

  // --- the line ------------------------------------------------------------------------------------------------------

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function line(place) {
    const bytes = Uint8Array.from(atob(place.dataset.answers), (letter) => letter.charCodeAt(0));
    const table = JSON.parse(new TextDecoder().decode(bytes));
    const asked = table.names.length ? `a formula in ${table.names.join(", ")}` : "a number";
    const input = element("input", { type: "text", name: "answer", autocomplete: "off", spellcheck: false });
    input.setAttribute("autocapitalize", "off");
    const said = element("output", {});
    const form = element(
      "form", {},
      element("label", {}, `Your answer, ${asked}`, input),
      element("button", { type: "submit", className: "sd-btn sd-btn-primary" }, "Check"),
      said,
      element(
        "details", {},
        element("summary", {}, "What can be typed"),
        element(
          "p", {},
          "Numbers such as 0.5, 2e-3 or 10,000; + - * / and ^ or ** for powers; brackets; pi and e; " +
            `${Object.keys(FUNCTIONS).join(", ")}, where log is the natural one. ` +
            (table.names.length
              ? `Greek letters have their names or are typed as they are. A formula of any form will do: it is compared at ${table.points.length} points.`
              : "What has to be computed first may be left to the browser: (1 + 2)/7 is a number, too."),
        ),
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      said.value = verdict(input.value, table);
      const right = said.value === table.answers[0][0];
      said.className = right ? "right" : "wrong";
      input.setAttribute("aria-invalid", String(!right));
    });
    input.addEventListener("input", () => {
      said.value = "";
      said.className = "";
      input.removeAttribute("aria-invalid");
    });
    place.append(form);
  }

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".neuron-answer").forEach(line));
})();
