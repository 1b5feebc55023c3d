// A frame is as high as its page says it is, so that nothing scrolls within the page.
addEventListener("message", ({ data, source }) => {
  for (const frame of document.querySelectorAll("iframe.explorer"))
    if (frame.contentWindow === source && data.height > 0) frame.style.height = `${data.height + 2}px`;
});
