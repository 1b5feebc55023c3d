"use strict";
// The picture of the parameter plane: the loss as shades, and the paths up to a step. One function draws screen and exports.
const PATHS = { plain: { width: 4.5, dash: [9, 4] }, modified: { width: 4.5 }, gradient: { width: 2, dash: [2, 4] }, descent: { width: 1.1, dots: true } };
const titleOf = (name, opt) => ({ descent: `${Optimizers.table[opt].title}, step by step`, plain: Optimizers.table[opt].plainly, modified: "its modified flow", gradient: "gradient flow of E" })[name];
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const tint = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const NAMES = ["paper", "ink", "soft", "line", "halo", "low", "high", "descent", "plain", "modified", "gradient", "lazy", "moderate", "ricochet", "divergent", "unfinished"];
const tints = () => Object.fromEntries(NAMES.map((name) => [name, tint(name)]));

const Plane = (() => {
  const view = (state) => Losses[state.loss].views[state.whole];
  const toX = (state, width) => { const v = view(state); return (a) => (clamp(a, -1e3, 1e3) - v.left) / v.width * width; };
  const toY = (state, height) => { const v = view(state); return (b) => height - (clamp(b, -1e3, 1e3) - v.low) / v.height * height; };

  const N = 250, M = 200;
  let levels, levelsOf = "", ground, groundOf = "";
  function shades(state) {             // 0 to 1 on a grid, in steps that read as contours; kept until loss or view change
    const id = `${state.loss} ${state.whole}`;
    if (levelsOf === id) return;
    levelsOf = id;
    const v = view(state), { value } = Losses[state.loss];
    levels = new Float64Array(N * M);
    for (let j = 0; j < M; j++) for (let i = 0; i < N; i++) levels[j * N + i] = value(v.left + v.width * (i + 0.5) / N, v.low + v.height * (M - j - 0.5) / M);
    const low = levels.reduce((u, x) => Math.min(u, x)), scale = 40 / Float64Array.from(levels).sort()[Math.floor(0.6 * N * M)] * 12;
    const top = Math.log10(1 + scale * (levels.reduce((u, x) => Math.max(u, x)) - low));
    for (let k = 0; k < levels.length; k++) levels[k] = Math.floor(20 * Math.log10(1 + scale * (levels[k] - low)) / top) / 20;
  }
  function background(state, colour) {
    shades(state);
    const id = `${levelsOf} ${colour.low} ${colour.high}`;
    if (groundOf === id) return ground;
    groundOf = id;
    ground = document.createElement("canvas");
    ground.width = N; ground.height = M;
    const rgb = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)), low = rgb(colour.low), high = rgb(colour.high);
    const context = ground.getContext("2d"), image = context.createImageData(N, M);
    for (let k = 0; k < levels.length; k++) {
      for (let c = 0; c < 3; c++) image.data[4 * k + c] = low[c] + (high[c] - low[c]) * levels[k];
      image.data[4 * k + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return ground;
  }

  function scenery(context, width, height, state, colour) {
    const v = view(state), x = toX(state, width), y = toY(state, height), { line, marks } = Losses[state.loss];
    const text = (words, at, up, align, fill) => {
      context.textAlign = align; context.lineWidth = 4; context.strokeStyle = colour.halo; context.lineJoin = "round";
      context.strokeText(words, at, up); context.fillStyle = fill; context.fillText(words, at, up);
    };
    context.font = "12px system-ui, sans-serif";
    context.strokeStyle = colour.line; context.lineWidth = 1;
    for (const [at, horizontal] of [[y(0), true], [x(0), false]]) {
      context.beginPath();
      if (horizontal) { context.moveTo(0, at); context.lineTo(width, at); } else { context.moveTo(at, 0); context.lineTo(at, height); }
      context.stroke();
    }
    const each = v.width > 7 || width < 420 && v.width > 4 ? 2 : 1, name = (value) => String(value).replace("-", "−");
    for (let k = Math.ceil(v.left); k < v.left + v.width; k++) if (k % each === 0 && x(k) > 22 && x(k) < width - 34) text(name(k), x(k), height - 7, "center", colour.soft);
    for (let k = Math.ceil(v.low); k < v.low + v.height; k++) if (k % each === 0 && y(k) > 34 && y(k) < height - 22) text(name(k), 7, y(k) + 4, "left", colour.soft);
    context.font = "italic 13px system-ui, sans-serif";
    text("a", width - 14, height - 7, "center", colour.ink); text("b", 7, 16, "left", colour.ink);
    if (line) {
      context.setLineDash([6, 5]); context.strokeStyle = colour.ink; context.lineWidth = 1.5;
      for (const sign of v.left < 0 ? [1, -1] : [1]) {
        context.beginPath();
        for (let s = 0; s <= 120; s++) { const a = sign * 0.05 * 240 ** (s / 120); context.lineTo(x(a), y(line(a))); }
        context.stroke();
      }
      context.setLineDash([]);
    }
    context.font = "600 13px system-ui, sans-serif";
    for (const [a, b, words] of marks) {
      const i = x(a), j = y(b);
      context.strokeStyle = colour.ink; context.lineWidth = 2.6; context.beginPath();
      context.moveTo(i - 7, j - 7); context.lineTo(i + 7, j + 7); context.moveTo(i + 7, j - 7); context.lineTo(i - 7, j + 7); context.stroke();
      text(words, i, j + 24, "center", colour.ink);
    }
  }

  function path(context, name, data, t, x, y, colour) {
    const { points, times } = data, style = PATHS[name], head = Dynamics.at(data, t);
    context.strokeStyle = context.fillStyle = colour[name];
    context.lineWidth = style.width; context.lineJoin = context.lineCap = "round";
    context.setLineDash(style.dash ?? []);
    context.beginPath();
    let last = 0;
    for (; last < points.length && times[last] <= t; last++) context.lineTo(x(points[last][0]), y(points[last][1]));
    context.lineTo(x(head[0]), y(head[1]));
    context.stroke();
    context.setLineDash([]);
    const dot = (p, radius, rim) => {
      context.beginPath(); context.arc(x(p[0]), y(p[1]), radius, 0, 7); context.fill();
      if (rim) { context.lineWidth = rim; context.strokeStyle = colour.halo; context.stroke(); context.strokeStyle = colour[name]; }
    };
    if (style.dots) {
      let i = NaN, j = NaN;
      for (let n = 0; n < Math.min(last, 1500); n++) {            // dots that would cover one another are left out
        const u = x(points[n][0]), v = y(points[n][1]);
        if (Math.hypot(u - i, v - j) < 1.5) continue;
        i = u; j = v;
        dot(points[n], 3.6, 0.9);
      }
      dot(head, 5.5, 1.6);
    } else dot(head, 6.5, 1.6);
  }

  // `t` is the step up to which the paths are drawn. Descent moves within a step, slowly at both of its ends.
  function draw(context, width, height, { state, result }, t, colour) {
    const x = toX(state, width), y = toY(state, height), whole = Math.floor(t), s = t - whole;
    context.save();                     // caps and joins of the last path are not those of the first mark
    context.imageSmoothingEnabled = true;
    context.drawImage(background(state, colour), 0, 0, width, height);
    scenery(context, width, height, state, colour);
    for (const name of ["gradient", "plain", "modified", "descent"])
      if (result[name]) path(context, name, result[name], name === "descent" ? whole + s * s * (3 - 2 * s) : t, x, y, colour);
    context.restore();
  }
  return { draw, toX, toY, view };
})();
