"use strict";
// Sorting by a click on a head, or by the list that narrow screens show instead.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("th[aria-sort]")], body = table.tBodies[0], original = [...body.rows];
  const list = document.querySelector(`select[data-sorts="${table.id}"]`), status = document.getElementById(`${table.id}-sorted`);
  const value = (row, column) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
  const sort = (column, direction) => {
    const numbers = original.every((row) => value(row, column) === "" || !Number.isNaN(Number(value(row, column))));
    const order = (a, b) => {
      const [u, v] = [value(a, column), value(b, column)];
      if ((u === "") !== (v === "")) return u === "" ? 1 : -1;       // what is missing comes last either way
      return direction * (numbers ? Number(u) - Number(v) : u.localeCompare(v, "en"));
    };
    body.append(...(direction ? [...original].sort(order) : original));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column || !direction ? "none" : direction > 0 ? "ascending" : "descending"));
    status.textContent = direction ? `Sorted by ${heads[column].dataset.name}, ${direction > 0 ? "ascending" : "descending"}.` : "In the order of the paper.";
    if (list) list.value = direction ? String(column) : "";
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const next = { none: 1, ascending: -1, descending: 0 }[head.getAttribute("aria-sort")];
    sort(column, next);
  }));
  list?.addEventListener("change", () => list.value === "" ? sort(0, 0) : sort(Number(list.value), 1));
}
// Filtering: every word must occur in the row; a verdict counts where either source has it.
for (const form of document.querySelectorAll("form[data-filters]")) {
  const rows = [...document.getElementById(form.dataset.filters).tBodies[0].rows], status = document.getElementById(`${form.dataset.filters}-shown`);
  const texts = new Map(rows.map((row) => [row, `${row.textContent} ${row.id}`.toLowerCase()]));
  const filter = () => {
    const { words, claim, verdict, experiment } = form.elements, wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = rows.filter((row) => {
      const keep = wanted.every((word) => texts.get(row).includes(word))
        && (!claim.value || row.dataset.claims.split(" ").includes(claim.value))
        && (!verdict.value || row.dataset.verdicts.split(",").includes(verdict.value))
        && (!experiment.value || row.dataset.experiment === experiment.value);
      row.hidden = !keep;
      return keep;
    });
    status.textContent = `${shown.length} of ${rows.length} claims.`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { filter(); form.elements.sort.dispatchEvent(new Event("change")); }));
  for (const link of document.querySelectorAll("a[data-claim]")) link.addEventListener("click", () => {
    form.reset();
    setTimeout(() => { form.elements.claim.value = link.dataset.claim; filter(); });
  });
  // A link to a row that the filter hides shows all rows.
  const reveal = () => { const row = document.getElementById(decodeURIComponent(location.hash.slice(1))); if (row?.hidden) { form.reset(); setTimeout(() => row.scrollIntoView()); } };
  addEventListener("hashchange", reveal);
  filter();                                                          // browsers keep what was typed before a reload
}
// On paper two figures lie side by side, unless a figure has two pictures or a broad one.
addEventListener("load", () => {
  for (const figure of document.querySelectorAll("figure")) {
    const images = [...figure.querySelectorAll("img")];
    figure.classList.toggle("broad", images.length > 1 || images.some((image) => image.naturalWidth > 2.6 * image.naturalHeight));
  }
});
// A click on a picture, or on the button below it, gives it the whole width, and on narrow screens more than that.
for (const picture of document.querySelectorAll(".picture")) {
  const button = picture.querySelector("button");
  const toggle = () => {
    const large = picture.classList.toggle("large");
    button.setAttribute("aria-pressed", String(large));
    picture.closest("figure").classList.toggle("wide", large);
    picture.scrollIntoView({ block: "nearest" });
  };
  button.addEventListener("click", toggle);
  picture.querySelector("img").addEventListener("click", toggle);
}
