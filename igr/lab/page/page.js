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
// What is folded away is printed, except the configurations, which would be many pages.
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.long, .long *)").forEach((each) => { each.open = true; }));
