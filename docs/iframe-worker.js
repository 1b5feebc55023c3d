// Browsers refuse workers to pages opened from disk. There the search runs in a hidden frame that takes a worker's place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>search</title>";
      this.inside = new Promise((resolve) => frame.addEventListener("load", () => {
        const inside = frame.contentWindow, script = inside.document.createElement("script");
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        script.src = url;
        script.onload = () => resolve(inside);
        inside.document.head.append(script);
      }));
      document.body.append(frame);
    }
    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
