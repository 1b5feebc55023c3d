"use strict";
// The map of step sizes: what each leads to, along a strip on which h is moved. It is filled a few step sizes a frame.
const Strip = (() => {
  const COUNT = 181, ORDER = [], MARGIN = 10, BAND = 22, BOTTOM = 20;
  for (let gap = 64; gap >= 1; gap /= 2) for (let i = 0; i < COUNT; i += gap) if (gap === 64 || (i / gap) % 2) ORDER.push(i);
  let samples = [], next = 0, current, pending = 0, cursor, done = () => {};
  const svg = () => byId("strip");
  const share = (h) => { const [low, high] = Dynamics.range(current); return Math.log(h / low) / Math.log(high / low); };
  const rate = (s) => { const [low, high] = Dynamics.range(current); return Number((low * (high / low) ** clamp(s, 0, 1)).toPrecision(4)); };
  const x = (s, width) => MARGIN + s * (width - 2 * MARGIN);
  const from = (event) => { const box = svg().getBoundingClientRect(); return rate((event.clientX - box.left - MARGIN) / (box.width - 2 * MARGIN)); };

  function key(state) { return [state.loss, state.opt, state.a, state.b, state.beta, state.rho, state.mu, state.empty].join(" "); }
  let keyOf = "";
  function follow(state) {            // a new map where anything but h has changed
    current = { ...state };
    if (key(state) !== keyOf) { keyOf = key(state); samples = new Array(COUNT); next = 0; byId("strip-title").textContent = Dynamics.ENDS[Losses[state.loss].quantity].title; }
    place();
    if (next < COUNT && !pending) pending = requestAnimationFrame(fill);
  }
  function fill() {
    pending = 0;
    const until = performance.now() + 5;
    do { const i = ORDER[next++]; samples[i] = Dynamics.sample(current, rate(i / (COUNT - 1))); } while (next < COUNT && performance.now() < until);
    if (next >= COUNT || next % 9 === 0) draw();
    if (next < COUNT) pending = requestAnimationFrame(fill); else done();
  }

  function draw() {
    const width = svg().clientWidth || 600, height = svg().clientHeight || 104, kept = samples.filter(Boolean), { quantity } = Losses[current.loss], { logarithmic } = Dynamics.ENDS[quantity];
    svg().setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg().replaceChildren();
    const runs = [];
    for (const each of kept) {
      if (runs.at(-1)?.regime === each.regime) runs.at(-1).to = each.h; else runs.push({ regime: each.regime, from: each.h, to: each.h });
    }
    runs.forEach((run, i) => {
      const left = i ? x((share(runs[i - 1].to) + share(run.from)) / 2, width) : 0, right = i < runs.length - 1 ? x((share(run.to) + share(runs[i + 1].from)) / 2, width) : width;
      svg().append(element("rect", { x: left, width: Math.max(0, right - left), y: 0, height: height - BOTTOM, fill: `var(--${run.regime})`, opacity: 0.45 }),
        element("rect", { x: left, width: Math.max(0, right - left), y: 0, height: BAND, fill: `var(--${run.regime})` }));
      if (right - left > 7.2 * run.regime.length) svg().append(element("text", { x: (left + right) / 2, y: 15, class: "word", "text-anchor": "middle" }, run.regime));
    });
    const value = (v) => logarithmic ? Math.log10(Math.max(v, 1e-6)) : v;
    const values = kept.flatMap((each) => [each.descent, each.plain, each.modified]).filter((v) => Number.isFinite(v) && Math.abs(v) < 20).map(value).sort((u, v) => u - v);
    const low = values[Math.floor(0.01 * values.length)] ?? 0, high = Math.max(values[Math.floor(0.99 * values.length)] ?? 1, low + 1e-3);
    const y = (v) => height - BOTTOM - 7 - (height - BOTTOM - BAND - 14) * clamp((value(v) - low) / (high - low), -0.08, 1.08);
    for (const name of ["plain", "modified"]) {
      const points = kept.filter((each) => Number.isFinite(each[name])).map((each) => [x(share(each.h), width), y(each[name])]);
      svg().append(element("path", { d: lineOf(points), ...styleOf(name, 2.6) }));
    }
    for (const each of kept) if (Number.isFinite(each.descent)) svg().append(element("circle", { cx: x(share(each.h), width).toFixed(1), cy: y(each.descent).toFixed(1), r: 1.9, fill: "var(--descent)" }));
    const [first, last] = Dynamics.range(current);
    for (let decade = -4; decade <= 0; decade++) for (const digit of [1, 2, 5]) {
      const h = digit * 10 ** decade, at = x(share(h), width);
      if (h >= first && h <= last && at > 14 && at < width - 14) svg().append(element("text", { x: at, y: height - 5, "text-anchor": "middle" }, String(Number(h.toPrecision(1)))));
    }
    svg().append(element("text", { x: width - 2, y: height - 5, "text-anchor": "end", "font-style": "italic" }, ""));
    cursor = svg().appendChild(element("g"));
    cursor.append(element("line", { x1: 0, x2: 0, y1: 0, y2: height - BOTTOM, stroke: "var(--ink)", "stroke-width": 2 }), element("circle", { cx: 0, cy: height - BOTTOM, r: 7, fill: "var(--ink)", stroke: "var(--halo)", "stroke-width": 2 }));
    place();
  }
  function place() {
    const width = svg().clientWidth || 600, [low, high] = Dynamics.range(current);
    cursor?.setAttribute("transform", `translate(${x(clamp(share(current.h), 0, 1), width)},0)`);
    for (const [name, value] of [["min", low], ["max", high], ["now", current.h], ["text", `${tidy(current.h)}, ${byId("regime").textContent}`]]) svg().setAttribute(`aria-value${name}`, value);
  }
  const wholly = () => new Promise((resolve) => { if (next >= COUNT) resolve(samples); else done = () => { done = () => {}; resolve(samples); }; });
  function keyed(event) {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (event.key === "Home") return rate(0);
    if (event.key === "End") return rate(1);
    return step ? rate(share(current.h) + step / 240) : null;
  }
  return { follow, draw, place, from, keyed, wholly };
})();
