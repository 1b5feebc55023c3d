// The search page shows summaries by fetching pages, which browsers refuse to pages opened from disk.
// (Sphinx declares its options as a constant, which is no property of the window.)
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// A frame is as high as its page says it is, so that nothing scrolls within the page, and has the colours of this one.
const explorers = () => document.querySelectorAll("iframe.explorer");
const colours = (frame) => frame.contentWindow.postMessage({ dark: document.documentElement.dataset.theme === "dark" }, "*");
addEventListener("message", ({ data, source }) => {
  for (const frame of explorers())
    if (frame.contentWindow === source && data.height > 0) {
      frame.style.height = `${data.height + 2}px`;
      colours(frame);
    }
});
new MutationObserver(() => explorers().forEach(colours)).observe(document.documentElement, { attributeFilter: ["data-theme"] });

// A table that is wider than its place is folded: one block for a row, each cell under the name of its column.
const fold = () => {
  for (const table of document.querySelectorAll("article table.table")) {
    const heads = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, i) => cell.dataset.head ??= heads[i] ?? "");
    table.classList.remove("folded");
    const place = table.parentElement;
    if (innerWidth < 720 && heads.length > 1 && table.scrollWidth > place.clientWidth + 1) table.classList.add("folded");
  }
};
addEventListener("DOMContentLoaded", fold);
addEventListener("resize", fold);
