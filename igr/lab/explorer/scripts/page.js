"use strict";
// The state of the page, its controls, and the clock.
(() => {
  const COMMON = { beta: Optimizers.KNOBS.beta.first, rho: Optimizers.KNOBS.rho.first, mu: Optimizers.KNOBS.mu.first, whole: 0, empty: 0 };
  const opening = (loss, opt) => ({ loss, opt, a: Losses[loss].start[0], b: Losses[loss].start[1], h: Number((Losses[loss].h * Optimizers.table[opt].factor).toPrecision(3)), ...COMMON });
  const PRESETS = [["the split: two valleys", { loss: "valleys", opt: "gd" }], ["the paper's lazy rate", { loss: "product", opt: "gd", h: 0.001 }], ["the paper's moderate rate", { loss: "product", opt: "gd", h: 0.025 }],
    ["the paper's ricochet", { loss: "product", opt: "gd", h: 0.18, whole: 1 }], ["momentum multiplies the effect", { loss: "valleys", opt: "momentum" }], ["an empty memory", { loss: "valleys", opt: "momentum", empty: 1 }],
    ["a network that changes its valley", { loss: "network", opt: "gd" }], ["SAM on the paper's model", { loss: "product", opt: "sam" }], ["a penalty on the paper's model", { loss: "product", opt: "penalty" }]];
  const calm = matchMedia("(prefers-reduced-motion: reduce)"), start = byId("start"), picture = byId("picture");
  let state = opening("valleys", "gd"), run, due = 0, n = 0, playing = false, before = 0, told = 0, quantity = "gap", size = [0, 0], colour = tints(), context;

  function limits(name, of = state) {
    const v = Losses[of.loss].views[1], knob = Optimizers.KNOBS[name];
    if (name === "a") return [v.left, v.left + v.width];
    if (name === "b") return [v.low, v.low + v.height];
    return name === "h" ? Dynamics.range(of) : knob ? knob.range : [0, 1];
  }
  function fromHash() {
    const given = new URLSearchParams(location.hash.slice(1)), old = !given.has("loss") && (given.has("a") || given.has("h"));       // links of version 0.1
    const loss = old ? "product" : Losses[given.get("loss")] ? given.get("loss") : "valleys", read = opening(loss, Optimizers.table[given.get("opt")] ? given.get("opt") : "gd");
    for (const name of ["a", "b", "h", "beta", "rho", "mu", "whole", "empty"]) {
      const text = given.get(name), value = Number(text);
      if (text !== null && text.trim() !== "" && Number.isFinite(value)) read[name] = clamp(value, ...limits(name, read));
    }
    return settle(read);
  }
  function settle(read) {             // the start is always in sight
    const v = Losses[read.loss].views[0], inside = read.a >= v.left && read.a <= v.left + v.width && read.b >= v.low && read.b <= v.low + v.height;
    return { ...read, whole: read.whole >= 0.5 || !inside ? 1 : 0, empty: read.empty >= 0.5 ? 1 : 0 };
  }
  const toHash = () => "#" + Object.entries(state).map(([name, value]) => `${name}=${typeof value === "string" ? value : tidy(value)}`).join("&");

  function set(change) {
    const next = { ...state };
    for (const [name, value] of Object.entries(change)) if (typeof value === "string") next[name] = value; else if (Number.isFinite(value)) next[name] = Number(clamp(value, ...limits(name, next)).toPrecision(6));
    state = settle(next);
    if (!due) due = requestAnimationFrame(() => { due = 0; update(); });
  }
  function choose(change) {           // another loss or optimizer: its own opening values, and its film
    state = settle({ ...opening(change.loss ?? state.loss, change.opt ?? state.opt), ...change });
    update();
    begin();
  }

  // The last step worth drawing: after it nothing moves by more than a pixel or two.
  function shownOf(result, width) {
    const settled = ({ points, times, end }) => { let i = points.length - 1; while (i > 0 && Math.hypot(points[i][0] - end[0], points[i][1] - end[1]) < 0.004 * width) i--; return times[i]; };
    const own = result.descent.outcome === "diverged" ? result.descent.steps : settled(result.descent);
    return Math.max(8, Math.ceil(1.05 * Math.max(own, ...["plain", "modified"].map((name) => Math.min(settled(result[name]), 2 * own + 20)))) + 2);
  }
  function update() {
    const result = Dynamics.run(state), ended = run === undefined || n >= run.shown;
    run = { state, result, shown: shownOf(result, Plane.view(state).width) };
    n = ended && !playing ? run.shown : Math.min(n, run.shown);
    controls();
    Numbers.heads(run); Numbers.words(run); Chart.draw(run, quantity);
    Strip.follow(state);
    start.setAttribute("transform", `translate(${Plane.toX(state, size[0])(state.a)},${Plane.toY(state, size[1])(state.b)})`);
    start.setAttribute("aria-label", `Start of all paths: a = ${tidy(state.a)}, b = ${tidy(state.b)}`);
    draw(true);
    window.igrExplorer = { state: { ...state }, result, shown: run.shown, step: () => n, playing: () => playing };       // read by the tests, and by whoever opens the console
    try { history.replaceState(null, "", toHash()); } catch { /* a page inside a sandbox has no address of its own */ }
  }
  function controls() {
    const { knob, memory } = Optimizers.table[state.opt], put = (id, value) => { if (document.activeElement !== byId(id)) byId(id).value = value; };
    for (const name of ["loss", "opt"]) byId(name).value = state[name];
    put("a", tidy(state.a)); put("b", tidy(state.b)); put("h-number", tidy(state.h));
    byId("whole").checked = state.whole === 1; byId("empty").checked = state.empty === 1;
    byId("knob-row").hidden = !knob; byId("empty-row").hidden = !memory;
    if (!knob) return;
    const { title, range } = Optimizers.KNOBS[knob];
    byId("knob-name").textContent = title;
    byId("knob-number").setAttribute("aria-label", `${title}, exact value`);
    put("knob-number", tidy(state[knob])); put("knob", ((state[knob] - range[0]) / (range[1] - range[0])) ** 0.5);
    byId("knob").setAttribute("aria-valuetext", tidy(state[knob]));
  }

  function draw(whole) {
    context.setTransform(picture.width / size[0], 0, 0, picture.height / size[1], 0, 0);
    Plane.draw(context, ...size, run, n, colour);
    Chart.move(n);
    byId("step").value = (n / run.shown) ** 0.5;
    const words = `step ${Math.floor(n).toLocaleString("en")} of ${run.shown.toLocaleString("en")}`;
    if (byId("count").textContent !== words) { byId("count").textContent = words; byId("step").setAttribute("aria-valuetext", words); }
    const now = performance.now();
    if (whole || now - told > 120) { told = now; Numbers.table(run, n); Fit.draw(run, n); }
  }
  const speed = (step) => 2.5 + 0.5 * step;               // steps a second: the first ones land one by one
  let awaited = 0;                    // one frame is asked for at a time, however often play is begun anew
  const another = () => { awaited ||= requestAnimationFrame(tick); };
  function tick(now) {
    awaited = 0;
    if (!playing) return;
    n = Math.min(run.shown, n + speed(n) * Math.min(0.05, Math.max(0, now - before) / 1000));
    before = now;
    if (n >= run.shown) pause();
    draw(!playing);
    if (playing) another();
  }
  function play() {
    if (n >= run.shown) n = 0;
    playing = true; before = performance.now();
    byId("play").setAttribute("aria-label", "Pause"); byId("play-icon").setAttribute("d", "M4 2h3v12H4zM9 2h3v12H9z");
    another();
  }
  function pause() {
    playing = false;
    byId("play").setAttribute("aria-label", "Play"); byId("play-icon").setAttribute("d", "M4 2l9 6-9 6z");
  }
  function begin() { if (calm.matches) { n = run.shown; draw(true); } else { n = 0; play(); } }
  function go(to) { pause(); n = clamp(to, 0, run.shown); draw(true); }

  function resize() {
    const next = [picture.clientWidth, picture.clientHeight], dense = Math.min(2, devicePixelRatio || 1);
    if (!next[0]) return;
    size = next;
    picture.width = Math.round(size[0] * dense); picture.height = Math.round(size[1] * dense);
    context = picture.getContext("2d");
    byId("handle").setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`);
    if (run) { update(); Strip.draw(); }
  }
  const place = (event) => {
    const box = byId("handle").getBoundingClientRect(), v = Plane.view(state), inside = (share) => clamp(share, 0, 1);
    set({ a: Number((v.left + v.width * inside((event.clientX - box.left) / box.width)).toFixed(3)), b: Number((v.low + v.height * (1 - inside((event.clientY - box.top) / box.height))).toFixed(3)) });
  };
  function drag(target, allowed, moved) {
    let dragging = false;
    target.addEventListener("pointerdown", (event) => { if (allowed(event)) { dragging = true; target.setPointerCapture(event.pointerId); moved(event, true); event.preventDefault(); } });
    target.addEventListener("pointermove", (event) => { if (dragging) moved(event); });
    for (const name of ["pointerup", "pointercancel"]) target.addEventListener(name, () => { dragging = false; });
  }
  // A finger must take the handle, so that the page still scrolls.
  drag(byId("handle"), (event) => event.pointerType === "mouse" || start.contains(event.target), (event, first) => {
    if (first) start.focus({ preventScroll: true });
    if (!first || !start.contains(event.target)) place(event);
  });
  start.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });   // touch-action is not heeded in all SVGs
  start.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: ["a", -1], ArrowRight: ["a", 1], ArrowDown: ["b", -1], ArrowUp: ["b", 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    set({ [move[0]]: Number((state[move[0]] + move[1] * (event.shiftKey ? 0.01 : 0.1)).toFixed(6)) });
  });
  const strip = byId("strip");
  drag(strip, () => true, (event, first) => { if (first) strip.focus({ preventScroll: true }); set({ h: Strip.from(event) }); });
  strip.addEventListener("keydown", (event) => { const h = Strip.keyed(event); if (h !== null) { event.preventDefault(); set({ h }); } });

  const typed = (id, name) => byId(id).addEventListener("input", (event) => { if (event.target.value !== "") set({ [name()]: Number(event.target.value) }); });
  typed("a", () => "a"); typed("b", () => "b"); typed("h-number", () => "h"); typed("knob-number", () => Optimizers.table[state.opt].knob);
  byId("knob").addEventListener("input", (event) => {
    const { knob } = Optimizers.table[state.opt], [low, high] = Optimizers.KNOBS[knob].range;
    set({ [knob]: Number((low + (high - low) * event.target.value ** 2).toPrecision(3)) });
  });
  byId("whole").addEventListener("change", (event) => {
    const v = Losses[state.loss].views[0];
    set(event.target.checked ? { whole: 1 } : { a: clamp(state.a, v.left, v.left + v.width), b: clamp(state.b, v.low, v.low + v.height), whole: 0 });
  });
  byId("empty").addEventListener("change", (event) => set({ empty: event.target.checked ? 1 : 0 }));
  for (const [id, { title }] of Object.entries(Losses)) byId("loss").append(new Option(title, id));
  for (const [id, { title }] of Object.entries(Optimizers.table)) byId("opt").append(new Option(title, id));
  for (const [id, { title }] of Object.entries(QUANTITIES)) byId("quantity").append(new Option(title, id));
  byId("preset").append(new Option("an example…", ""), ...PRESETS.map(([title], i) => new Option(title, i)));
  for (const name of ["loss", "opt"]) byId(name).addEventListener("change", (event) => choose({ [name]: event.target.value }));
  byId("preset").addEventListener("change", (event) => { if (event.target.value !== "") choose(PRESETS[event.target.value][1]); });
  byId("quantity").addEventListener("change", (event) => { quantity = event.target.value; Chart.draw(run, quantity); Chart.move(n); });

  const actions = { play: () => playing ? pause() : play(), first: () => go(0), back: () => go(Math.ceil(n) - 1), next: () => go(Math.floor(n) + 1), last: () => go(run.shown) };
  for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
  byId("step").addEventListener("input", (event) => go(Math.round(event.target.value ** 2 * run.shown)));
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, button, a, summary") || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = actions[{ " ": "play", ",": "back", ".": "next" }[event.key]];
    if (action) { event.preventDefault(); action(); }
  });

  let saying = 0;
  const say = (words, rest = 4000) => { byId("said").textContent = words; clearTimeout(saying); if (rest) saying = setTimeout(() => { byId("said").textContent = ""; }, rest); };
  byId("link").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); say("Copied."); } catch { say("The address bar has the link."); }
  });
  byId("png").addEventListener("click", async () => { Export.save(await Export.png(run, n), `igr-${state.loss}-${state.opt}.png`); say("Saved."); });
  function film() {                   // about 50 pictures at the pace of the page, and a rest at the end
    const times = [];
    for (let t = 0; t < run.shown; t += Math.max(0.34, run.shown / 220, 0.12 * speed(t))) times.push([t, times.length ? 90 : 700]);
    return [...times, [run.shown, 2500]];
  }
  byId("gif").addEventListener("click", async () => {
    byId("gif").disabled = true;
    Export.save(await Export.gif(run, film(), (share) => say(`Drawing: ${share}`, 0)), `igr-${state.loss}-${state.opt}.gif`);
    byId("gif").disabled = false; say("Saved.");
  });

  addEventListener("hashchange", () => { state = fromHash(); update(); });
  new ResizeObserver(resize).observe(byId("plane"));
  if (parent !== window) new ResizeObserver(() => parent.postMessage({ height: document.documentElement.offsetHeight }, "*")).observe(document.documentElement);
  let dark = system.matches;
  const paint = (wanted) => { colours(wanted); colour = tints(); if (run) draw(true); };
  if (parent === window) system.addEventListener("change", ({ matches }) => paint(dark = matches));
  else addEventListener("message", ({ data, source }) => { if (source === parent && "dark" in Object(data)) paint(dark = data.dark); });
  addEventListener("beforeprint", () => paint(false));
  addEventListener("afterprint", () => paint(dark));
  state = fromHash();
  resize(); update();
  begin();
})();
