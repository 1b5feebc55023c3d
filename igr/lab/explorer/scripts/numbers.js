"use strict";
// The numbers and the sentences of the page.
const tidy = (value) => String(Number(value.toPrecision(6)));
const Numbers = (() => {
  const COLUMNS = ["descent", "modified", "plain", "gradient"];
  const ROWS = [["a", (r) => show(r.p[0])], ["b", (r) => show(r.p[1])], ["norm |θ|", (r) => show(Dynamics.norm(r.p))], ["E", (r) => show(r.d[0])],
    ["R_IG", (r) => show((r.d[1] ** 2 + r.d[2] ** 2) / 2)], ["slope |∇E|", (r) => show(Dynamics.slope(r.d))], ["h λmax", (r, s) => show(s.h * Dynamics.sharpness(r.d), 3)],
    ["from descent", (r, s, q) => r.p === q ? "–" : show(Math.hypot(r.p[0] - q[0], r.p[1] - q[1]))]];
  const MEANINGS = (loss) => [["lazy", `The steps are small: ${loss.lazily}.`], ["moderate", "The steps leave the plain flow, and none of them turns back. The modified flow describes them."],
    ["ricochet", `Some step ${loss.passing}, as no flow can. There is no modified flow to stay on.`], ["divergent", "The loss grows without bound."], ["unfinished", "The path has not come to rest. It may sit near a saddle, go round in a cycle, or move very slowly."]];

  function key(name, opt) {       // a piece of the path's line, and its name
    const drawn = element("svg", { class: "key", viewBox: "0 0 50 10", "aria-hidden": "true" });
    drawn.append(element("line", { x1: 3, x2: 47, y1: 5, y2: 5, ...styleOf(name, name === "descent" ? 1.5 : Math.min(4, PATHS[name].width)) }));
    if (name === "descent") drawn.append(element("path", { d: "M5,5h0M25,5h0M45,5h0", class: "path", stroke: "var(--descent)", "stroke-width": 7 }));
    return [drawn, titleOf(name, opt)];
  }
  let headsOf = "";
  function heads({ state, result }) {
    const drawn = COLUMNS.filter((name) => result[name]), id = `${state.opt} ${drawn}`;
    if (headsOf === id) return;
    headsOf = id;
    const row = document.querySelector("thead tr"), body = document.querySelector("tbody");
    row.replaceChildren(row.firstElementChild);
    byId("legend").replaceChildren();
    for (const name of drawn) {
      const cell = row.appendChild(document.createElement("th"));
      cell.scope = "col";
      cell.append(...key(name, state.opt));
      if (name === "descent") cell.lastChild.textContent = "descent";
      byId("legend").appendChild(document.createElement("li")).append(...key(name, state.opt));
    }
    body.replaceChildren();
    for (const [title] of ROWS) {
      const line = body.insertRow(), label = line.appendChild(document.createElement("th"));
      label.scope = "row"; label.textContent = title;
      for (const name of drawn) line.insertCell().dataset.path = name;
    }
  }
  function table({ state, result, shown }, n) {
    const { derivatives } = Losses[state.loss], last = n >= shown, at = (name) => last ? result[name].end : Dynamics.at(result[name], name === "descent" ? Math.floor(n) : n);
    byId("at").textContent = last ? "at the end" : `at step ${Math.floor(n)}`;
    const where = at("descent");
    for (const row of document.querySelector("tbody").rows) for (const cell of row.querySelectorAll("td")) {
      const p = cell.dataset.path === "descent" ? where : at(cell.dataset.path);
      cell.textContent = ROWS[row.sectionRowIndex][1]({ p, d: derivatives(...p) }, state, where);
    }
  }

  // The length of the correction over that of the update, where it is largest along the modified flow's way.
  function correction({ state, result }) {
    const optimizer = Optimizers.table[state.opt].make(Losses[state.loss].derivatives, state);
    const of = (p) => { const u = optimizer.plain(p), g = optimizer.modified(p); return Math.hypot(g[0] - u[0], g[1] - u[1]) / Math.max(Math.hypot(...u), 1e-300); };
    return of(result.descent.points[0]);
  }
  function words(run) {
    const { state, result } = run, loss = Losses[state.loss], { rule, loss: modified, title } = Optimizers.table[state.opt], { descent, plain, regime, gaps } = result;
    const badge = byId("regime"), meanings = MEANINGS(loss), steps = descent.steps.toLocaleString("en");
    badge.textContent = badge.dataset.regime = regime;
    badge.style.background = `var(--${regime})`;
    byId("meaning").textContent = meanings.find(([word]) => word === regime)[1];
    byId("meanings").replaceChildren(...meanings.flatMap(([word, text]) => [["dt", word], ["dd", text]]).map(([tag, text]) => { const made = document.createElement(tag); made.textContent = text; return made; }));
    const ratio = correction(run);
    const said = descent.outcome === "diverged" ? `The loss of the steps grows without bound: it is beyond every number after ${steps} steps. The flows stay finite.`
      : `On its way ${state.opt === "gd" ? "descent" : title} is at most ${show(Dynamics.largest(gaps.modified))} from its modified flow, and ${show(Dynamics.largest(gaps.plain))} from the ${titleOf("plain", state.opt)}.`;
    const turned = descent.turns ? ` Of its ${steps} steps, ${descent.turns.toLocaleString("en")} ${descent.turns === 1 ? loss.passing : loss.passing.replace("turns", "turn").replace("passes", "pass")}.` : "";
    const rest = { hovers: " SAM then hovers about a place to which it never comes closer.", unfinished: ` It has not come to rest after ${steps} steps: it may sit at a saddle or on a cycle.` }[descent.outcome] ?? "";
    const large = ratio > 0.3 ? ` At the start the correction is ${Math.round(100 * ratio)} % of the update: the modified flow, which is of first order, is a rough description there.` : "";
    const near = state.opt === "sam" && descent.outcome === "converged" ? ` SAM's paths end where the slope falls below ${loss.near}: where it is smaller, the direction of SAM's move jumps from step to step.` : "";
    const stalled = plain.outcome === "stalled" ? " The plain flow comes to rest away from the minima." : "";
    byId("summary").textContent = said + turned + rest + near + stalled + large;
    byId("caption").textContent = `h = ${tidy(state.h)}; ${steps} steps. The correction at the start is ${show(100 * ratio, 1)} % of the update.`;
    const line = (name, text) => { const b = document.createElement("b"); b.textContent = name; return [b, ` ${text}`, document.createElement("br")]; };
    const about = document.createElement("span");
    about.textContent = loss.about;
    byId("formulas").replaceChildren(...line("Loss:", loss.formula), ...line("Step:", rule), ...line("Modified flow:", state.opt === "adam" ? modified : `that of ${modified}`), about);
    byId("picture").setAttribute("aria-label", `Shades of the loss with ${Object.keys(result).filter((name) => PATHS[name]).length} paths from a = ${tidy(state.a)}, b = ${tidy(state.b)}. ${said}`);
  }
  return { heads, table, words };
})();
