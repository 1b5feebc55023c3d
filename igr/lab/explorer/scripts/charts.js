"use strict";
// What is drawn beside the plane: a quantity against the step, and what the network computes.
const byId = (id) => document.getElementById(id);
const element = (name, attributes = {}, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const show = (value, digits = 4) => !Number.isFinite(value) ? (value > 0 ? "∞" : "–") : value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3
  ? value.toExponential(1).replace("e+", "e").replaceAll("-", "−") : value.toFixed(digits).replace("-", "−");
const lineOf = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
const styleOf = (name, width = PATHS[name].width) => ({ class: "path", stroke: `var(--${name})`, "stroke-width": width, "stroke-dasharray": (PATHS[name].dash ?? []).join(" ") });

const QUANTITIES = {
  gap: { title: "distance from descent", of: (d, p, q) => Math.hypot(p[0] - q[0], p[1] - q[1]), skip: "descent" },
  E: { title: "loss E", of: (d) => d[0], logarithmic: true },
  r: { title: "R_IG", of: (d) => (d[1] * d[1] + d[2] * d[2]) / 2, logarithmic: true },
  slope: { title: "slope |∇E|", of: (d) => Dynamics.slope(d), logarithmic: true },
  sharp: { title: "h λmax", of: (d, p, q, state) => state.h * Dynamics.sharpness(d) },
  norm: { title: "norm |θ|", of: (d, p) => Dynamics.norm(p) },
};

const Chart = (() => {
  const LEFT = 52, BOTTOM = 32, TOP = 10, RIGHT = 12;
  let scaleX = () => 0, height = 0, cursor;
  function draw({ state, result, shown }, quantity) {
    const svg = byId("chart"), width = svg.clientWidth || 400, { of, logarithmic, skip, title } = QUANTITIES[quantity], { derivatives } = Losses[state.loss];
    height = svg.clientHeight || 190;
    const names = ["gradient", "plain", "modified", "descent"].filter((name) => result[name] && name !== skip);
    const scale = (v) => logarithmic ? Math.log10(Math.max(v, 1e-14)) : v;
    const count = Math.min(240, Math.max(2, Math.ceil(shown))), curves = names.map((name) => [name, Array.from({ length: count + 1 }, (_, i) => {
      const t = shown * i / count, p = Dynamics.at(result[name], t), n = name === "descent" ? Math.round(t) : t;
      const at = name === "descent" ? Dynamics.at(result.descent, n) : p;
      return [n, scale(of(derivatives(...at), at, Dynamics.at(result.descent, t), state))];
    }).filter(([, v]) => Number.isFinite(v) && Math.abs(v) < 1e6)]);
    const values = curves.flatMap(([, points]) => points.map(([, v]) => v));
    let low = Math.min(...values, logarithmic ? Infinity : 0), high = Math.max(...values);
    if (!values.length) [low, high] = [0, 1];
    if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
    scaleX = (n) => LEFT + (width - LEFT - RIGHT) * clamp(n / shown, 0, 1);
    const y = (v) => height - BOTTOM - (height - BOTTOM - TOP) * (v - low) / (high - low);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-label", `${title} against the step, from ${show(logarithmic ? 10 ** low : low, 2)} to ${show(logarithmic ? 10 ** high : high, 2)}, until step ${Math.round(shown)}`);
    svg.replaceChildren();
    const decades = Math.max(1, Math.ceil((high - low) / 4));
    for (let i = 0; i <= 4; i++) {
      const v = logarithmic ? Math.floor(high) - i * decades : low + (high - low) * i / 4;
      if (v >= low) svg.append(element("line", { x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v), stroke: "var(--line)" }),
        element("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, logarithmic ? `1e${v}`.replace("-", "−") : v.toPrecision(2).replace("-", "−")));
      const n = Math.round(shown * i / 4);
      svg.append(element("text", { x: scaleX(n), y: height - 15, "text-anchor": i === 4 ? "end" : "middle" }, n.toLocaleString("en")));
    }
    svg.append(element("text", { x: (LEFT + width) / 2, y: height - 2, "text-anchor": "middle" }, "step"));
    for (const [name, points] of curves) svg.append(element("path", { d: lineOf(points.map(([n, v]) => [scaleX(n), y(v)])), "data-path": name, ...styleOf(name, name === "descent" ? 2 : 3) }));
    cursor = svg.appendChild(element("line", { y1: TOP, y2: height - BOTTOM, stroke: "var(--ink)", "stroke-width": 1.4 }));
  }
  function move(n) {
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, scaleX(n).toFixed(1));
  }
  return { draw, move };
})();

const Fit = (() => {
  function draw({ state, result }, n) {
    const loss = Losses[state.loss];
    byId("fit-box").hidden = !loss.points;
    if (!loss.points) return;
    const svg = byId("fit"), width = svg.clientWidth || 400, height = svg.clientHeight || 150;
    const x = (v) => (v + 2.6) / 5.2 * width, y = (v) => height / 2 - v / 2.2 * (height / 2 - 6), drawn = [];
    for (const name of ["plain", "modified", "descent"]) {
      const p = Dynamics.at(result[name], name === "descent" ? Math.floor(n) : n);
      const points = Array.from({ length: 79 }, (_, i) => { const v = -2.6 + 5.2 * i / 78; return [x(v), clamp(y(loss.output(p, v)), -20, height + 20)]; });
      drawn.push(element("path", { d: lineOf(points), "data-path": name, ...styleOf(name, name === "descent" ? 1.8 : 3.2) }));
    }
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-label", `Output against input at step ${Math.floor(n)}, for descent and its two flows, with the five training points`);
    svg.replaceChildren(element("line", { x1: 0, x2: width, y1: y(0), y2: y(0), stroke: "var(--line)" }), ...drawn,
      ...loss.points.map(([u, v]) => element("circle", { cx: x(u), cy: y(v), r: 5, fill: "var(--ink)", stroke: "var(--halo)", "stroke-width": 1.5 })),
      element("text", { x: width - 6, y: y(0) - 5, "text-anchor": "end" }, "x"), element("text", { x: 6, y: 14 }, "f(x)"));
  }
  return { draw };
})();
