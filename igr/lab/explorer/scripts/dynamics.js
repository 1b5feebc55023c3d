"use strict";
// Paths of an optimizer and of its two flows, without a page. Times are steps.
const Dynamics = (() => {
  const MOST = 200000, EXPLODED = 1e100, KEPT = 4000;

  const slope = (d) => Math.hypot(d[1], d[2]);
  const sharpness = (d) => (d[3] + d[5]) / 2 + Math.hypot((d[3] - d[5]) / 2, d[4]);            // the Hessian's largest eigenvalue

  // Dormand and Prince's 5(4) pair with local extrapolation.
  const C = [[1 / 5], [3 / 40, 9 / 40], [44 / 45, -56 / 15, 32 / 9], [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656], [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]];
  const D = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40];
  function flow(field, start, until, done, rtol = 1e-10) {
    const points = [start], times = [0], atol = rtol / 100, k = new Array(7), begin = field(start), slopes = [begin];
    let [a, b] = start, t = 0, dt = Math.min(1e-2, until), outcome = "unfinished";
    k[0] = begin;
    for (let n = 0; n < 8000; n++) {
      if (done([a, b])) { outcome = "converged"; break; }
      if (!(Math.hypot(...k[0]) > 1e-13)) { outcome = "stalled"; break; }
      if (t >= until) break;
      dt = Math.min(dt, until - t);
      let x, y;
      for (let j = 0; j < 6; j++) {
        x = a; y = b;
        for (let i = 0; i <= j; i++) { x += dt * C[j][i] * k[i][0]; y += dt * C[j][i] * k[i][1]; }
        k[j + 1] = field([x, y]);
      }
      let ea = 0, eb = 0;
      for (let i = 0; i < 7; i++) { ea += dt * D[i] * k[i][0]; eb += dt * D[i] * k[i][1]; }
      const error = Math.hypot(ea / (atol + rtol * Math.max(Math.abs(a), Math.abs(x))), eb / (atol + rtol * Math.max(Math.abs(b), Math.abs(y)))) / Math.SQRT2;
      if (error <= 1) {
        t += dt; a = x; b = y; k[0] = k[6];                         // first same as last
        points.push([a, b]); times.push(t); slopes.push(k[0]);
      }
      dt *= Number.isFinite(error) ? Math.min(5, Math.max(0.2, 0.9 * error ** -0.2)) : 0.2;
      if (dt < 1e-12 * Math.max(1, t)) break;                       // a kink that no step passes
    }
    return { points, times, slopes, end: [a, b], time: t, outcome };
  }

  function descend(optimizer, loss, start, until, done, filled) {
    const points = [start], times = [0], memory = optimizer.begin(start, filled), { value, crosses } = loss;
    let p = start, before = null, n = 0, turns = 0, row = 0, outcome = "unfinished";
    while (n < until) {
      if (done(p)) { outcome = "converged"; break; }
      const next = optimizer.step(p, memory), u = [next[0] - p[0], next[1] - p[1]];
      const turned = crosses ? crosses(p, next) : before !== null && u[0] * before[0] + u[1] * before[1] < 0;
      row = turned ? row + 1 : 0;
      if (turned) turns++;
      before = u; p = next; n++;
      if (n <= KEPT || n % 1000 === 0) { points.push(p); times.push(n); }
      if (!(value(...p) < EXPLODED)) { outcome = "diverged"; break; }
      if (optimizer.hovers && row > 8) { outcome = "hovers"; break; }
    }
    if (times.at(-1) !== n) { points.push(p); times.push(n); }
    return { points, times, end: p, steps: n, time: n, turns, outcome };
  }

  // The point of a path at a time: straight between steps, cubic (Hermite's) along a flow, and its end after its end.
  function at({ points, times, slopes }, t) {
    let low = 0, high = times.length - 1;
    if (t >= times[high]) return points[high];
    while (high - low > 1) { const middle = (low + high) >> 1; if (times[middle] <= t) low = middle; else high = middle; }
    const dt = times[high] - times[low], s = (t - times[low]) / dt, p = points[low], q = points[high];
    if (!slopes) return [p[0] + s * (q[0] - p[0]), p[1] + s * (q[1] - p[1])];
    const u = slopes[low], v = slopes[high], h00 = (1 + 2 * s) * (1 - s) ** 2, h10 = s * (1 - s) ** 2 * dt, h01 = s * s * (3 - 2 * s), h11 = s * s * (s - 1) * dt;
    return [0, 1].map((i) => h00 * p[i] + h10 * u[i] + h01 * q[i] + h11 * v[i]);
  }

  // The distance from descent to a flow at every step that is kept.
  const gaps = (descent, other) => descent.times.map((n, i) => { const q = at(other, n); return Math.hypot(descent.points[i][0] - q[0], descent.points[i][1] - q[1]); });
  const largest = (values) => values.reduce((u, v) => Math.max(u, v), 0);

  function regimeOf(loss, descent, plain, gap) {
    if (descent.outcome === "diverged") return "divergent";
    if (descent.turns > 0) return descent.outcome === "unfinished" ? "unfinished" : "ricochet";
    if (descent.outcome === "unfinished") return "unfinished";
    return loss.lazy(descent, plain, gap) ? "lazy" : "moderate";
  }

  // Descent, its plain and its modified flow, and for optimizers whose plain flow is another one the gradient flow of E.
  function run({ loss: id, opt, a, b, h, beta, rho, mu, empty }, rtol = 1e-10) {
    const loss = Losses[id], { derivatives } = loss, entry = Optimizers.table[opt], start = [a, b];
    const optimizer = entry.make(derivatives, { h, beta, rho, mu });
    const near = opt === "sam" ? (d) => slope(d) < loss.near : loss.arrived;
    optimizer.hovers = opt === "sam";
    const done = (p) => near(derivatives(...p));
    const until = Math.min(MOST, Math.max(loss.most, Math.ceil(2 * loss.horizon / optimizer.s)));
    const descent = descend(optimizer, loss, start, until, done, !empty);
    const plain = flow(optimizer.plain, start, until, done, rtol), modified = flow(optimizer.modified, start, until, done, rtol);
    const result = { descent, plain, modified };
    if (entry.own && rtol < 1e-8) result.gradient = flow(([x, y]) => { const d = derivatives(x, y); return [-h * d[1], -h * d[2]]; }, start, until, (p) => loss.arrived(derivatives(...p)), rtol);
    result.gaps = descent.outcome === "diverged" ? { plain: [], modified: [] } : { plain: gaps(descent, plain), modified: gaps(descent, modified) };
    result.regime = regimeOf(loss, descent, plain, largest(result.gaps.plain));
    return result;
  }

  const norm = ([a, b]) => Math.hypot(a, b);
  const ENDS = {            // what the map of h shows
    norm: { title: "norm |θ| at the end", of: (r, name) => norm(r[name].end) },
    a: { title: "a at the end", of: (r, name) => r[name].end[0] },
    b: { title: "b at the end", of: (r, name) => r[name].end[1] },
    gap: { title: "largest distance from descent", logarithmic: true, of: (r, name) => name === "descent" ? NaN : largest(r.gaps[name]) },
  };
  function sample(state, h) {
    const r = run({ ...state, h }, 1e-6), { of } = ENDS[Losses[state.loss].quantity];
    return { h, regime: r.regime, descent: r.regime === "divergent" ? NaN : of(r, "descent"), plain: of(r, "plain"), modified: of(r, "modified") };
  }
  function range({ loss, opt }) {
    const [low, high] = Losses[loss].rates, { factor } = Optimizers.table[opt];
    return [low * factor, high * factor];
  }
  return { run, sample, range, at, largest, slope, sharpness, norm, ENDS };
})();
