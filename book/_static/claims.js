// Filters for the ledger, made of the data that its cards carry. Without JavaScript all cards are shown.
document.addEventListener("DOMContentLoaded", () => {
  const ledger = document.querySelector(".claims");
  if (!ledger) return;
  const cards = [...ledger.querySelectorAll("article")];
  const form = document.createElement("form");
  form.className = "claims-filter";
  const shown = document.createElement("output");
  for (const name of ["paper", "verdict", "basis", "severity", "kind"]) {
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.name = name;
    select.add(new Option("all", ""));
    for (const value of new Set(cards.map((card) => card.dataset[name]))) select.add(new Option(value));
    label.append(`${name} `, select);
    form.append(label);
  }
  form.append(shown);
  // The address carries the filter, so that a link can: claims.html?paper=DNRT&severity=fatal
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  const apply = () => {
    const wanted = [...new FormData(form)].filter(([, value]) => value);
    for (const card of cards) card.hidden = !wanted.every(([name, value]) => card.dataset[name] === value);
    shown.value = `${cards.filter((card) => !card.hidden).length} of ${cards.length} claims`;
  };
  // A link to a card that the filter hides shows all of them.
  const visit = () => {
    const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (card && card.hidden) {
      form.reset();
      apply();
      card.scrollIntoView();
    }
  };
  // The name of a test becomes a link to its file, wherever the page says that the source lies.
  const source = document.querySelector("a.btn-source-repository-button")?.href;
  for (const code of source ? ledger.querySelectorAll("footer code") : []) {
    const link = document.createElement("a");
    link.href = `${source}/blob/main/${code.textContent.split("::")[0]}`;
    code.replaceWith(link);
    link.append(code);
  }
  form.addEventListener("change", () => {
    apply();
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", `${location.pathname}?${wanted}`);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", visit);
  ledger.before(form);
  apply();
  visit();
});
