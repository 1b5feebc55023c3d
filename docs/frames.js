// A frame is as high as its page says it is, so that nothing scrolls within the page, and has the colours of this one.
const explorers = () => document.querySelectorAll("iframe.explorer");
const colours = (frame) => frame.contentWindow.postMessage({ dark: document.body.dataset.mdColorScheme === "slate" }, "*");

addEventListener("message", ({ data, source }) => {
  for (const frame of explorers())
    if (frame.contentWindow === source && data.height > 0) {
      frame.style.height = `${data.height + 2}px`;
      colours(frame);
    }
});
new MutationObserver(() => explorers().forEach(colours)).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
