"use strict";
// Optimizers as step maps, each with the field of its update (plain) and its modified field to first order. Time counts steps.
// The rule is that of igr.optimizers: an optimizer follows its own update, computed with gradients that are k + 1/2 steps late.
// For averages of gradients the lag k is a number, the mean lag of the average; SAM and the penalty are gradient descent on
// another field F, for which the rule is F - F'F/2.
const Optimizers = (() => {
  const RHO2 = 0.9, EPS = 0.3;       // Adam's second average and its epsilon
  const hessian = (d, x, y) => [d[3] * x + d[4] * y, d[4] * x + d[5] * y];
  const third = (d, [u, v], x, y) => [                                            // T[u] (x, y)
    (d[6] * u + d[7] * v) * x + (d[7] * u + d[8] * v) * y, (d[7] * u + d[8] * v) * x + (d[8] * u + d[9] * v) * y];

  // Sums of weighted past gradients: s is the sum of the weights, lag their mean lag.
  function linear(derivatives, s, lag, begin, step) {
    const plain = ([a, b]) => { const d = derivatives(a, b); return [-s * d[1], -s * d[2]]; };
    const modified = ([a, b]) => {
      const d = derivatives(a, b), [x, y] = hessian(d, d[1], d[2]), c = s * s * (lag + 0.5);
      return [-s * d[1] - c * x, -s * d[2] - c * y];
    };
    return { s, plain, modified, begin, step };
  }

  function momentum(derivatives, h, beta, nesterov) {
    const s = h / (1 - beta), lag = nesterov ? beta * beta / (1 - beta) : beta / (1 - beta);
    return linear(derivatives, s, lag, ([a, b], filled) => {
      if (!filled) return [0, 0];
      const d = derivatives(a, b), [x, y] = hessian(d, -s * d[1], -s * d[2]);     // the gradient's change in one step
      return [d[1] / (1 - beta) - x / (1 - beta) ** 2, d[2] / (1 - beta) - y / (1 - beta) ** 2];
    }, ([a, b], v) => {
      const d = derivatives(a, b);
      v[0] = beta * v[0] + d[1]; v[1] = beta * v[1] + d[2];
      return nesterov ? [a - h * (d[1] + beta * v[0]), b - h * (d[2] + beta * v[1])] : [a - h * v[0], b - h * v[1]];
    });
  }

  function adam(derivatives, h, beta) {
    const first = beta / (1 - beta) + 0.5, second = RHO2 / (1 - RHO2) + 0.5;
    const plain = ([a, b]) => { const d = derivatives(a, b); return [-h * d[1] / (Math.abs(d[1]) + EPS), -h * d[2] / (Math.abs(d[2]) + EPS)]; };
    const modified = ([a, b]) => {
      const d = derivatives(a, b), p = Math.abs(d[1]) + EPS, q = Math.abs(d[2]) + EPS, u = -h * d[1] / p, v = -h * d[2] / q;
      const [x, y] = hessian(d, u, v);
      return [u + h * x / p * (first - second * Math.abs(d[1]) / p), v + h * y / q * (first - second * Math.abs(d[2]) / q)];
    };
    const begin = (p, filled) => {
      if (!filled) return { m: [0, 0], v: [0, 0], n: 0 };
      const d = derivatives(...p), w = hessian(d, ...plain(p)), g = [d[1], d[2]];
      return { n: Infinity, m: g.map((x, i) => x - w[i] / (1 - beta)),
        v: g.map((x, i) => x * x - 2 * x * w[i] / (1 - RHO2) + w[i] * w[i] * (1 + RHO2) / (1 - RHO2) ** 2) };
    };
    const step = (p, state) => {
      const d = derivatives(...p);
      state.n++;
      return p.map((x, i) => {
        const g = d[1 + i];
        state.m[i] = beta * state.m[i] + (1 - beta) * g;
        state.v[i] = RHO2 * state.v[i] + (1 - RHO2) * g * g;
        return x - h * state.m[i] / (1 - beta ** state.n) / (Math.sqrt(state.v[i] / (1 - RHO2 ** state.n)) + EPS);
      });
    };
    return { s: h / EPS, plain, modified, begin, step };
  }

  // Steps x + F(x), with F and F'F from one function.
  function euler(s, both) {
    const modified = (p) => { const [u, v, x, y] = both(p); return [u - x / 2, v - y / 2]; };
    const plain = (p) => both(p).slice(0, 2);
    return { s, plain, modified, begin: () => null, step: (p) => { const [u, v] = both(p); return [p[0] + u, p[1] + v]; } };
  }
  const sam = (derivatives, h, rho) => euler(h, ([a, b]) => {
    const d = derivatives(a, b), norm = Math.hypot(d[1], d[2]) || 1e-300, x = d[1] / norm, y = d[2] / norm;
    const e = derivatives(a + rho * x, b + rho * y), u = -h * e[1], v = -h * e[2];
    const [k, l] = hessian(d, u, v), along = k * x + l * y;                      // the direction turns by (k, l) less its part along it
    const [m, n] = hessian(e, u + rho * (k - along * x) / norm, v + rho * (l - along * y) / norm);
    return [u, v, -h * m, -h * n];
  });
  const penalty = (derivatives, h, mu) => euler(h, ([a, b]) => {
    const d = derivatives(a, b), g = [d[1], d[2]], [x, y] = hessian(d, ...g);
    const u = -h * (g[0] + 2 * mu * x), v = -h * (g[1] + 2 * mu * y), [k, l] = hessian(d, u, v), [m, n] = hessian(d, k, l), [o, q] = third(d, [u, v], ...g);
    return [u, v, -h * (k + 2 * mu * (m + o)), -h * (l + 2 * mu * (n + q))];
  });

  // factor: the range of h, and its opening value, are the loss's times this.
  const table = {
    gd: { title: "gradient descent", factor: 1, plainly: "gradient flow", make: (f, o) => linear(f, o.h, 0, () => null, ([a, b]) => { const d = f(a, b); return [a - o.h * d[1], b - o.h * d[2]]; }),
      rule: "θ ← θ − h∇E", loss: "E + (h/4)|∇E|²" },
    momentum: { title: "momentum (heavy ball)", factor: 0.12, knob: "beta", memory: true, plainly: "gradient flow", make: (f, o) => momentum(f, o.h, o.beta, false),
      rule: "v ← βv + ∇E, θ ← θ − hv", loss: "E + (s/4)·(1 + β)/(1 − β)·|∇E|² with s = h/(1 − β)" },
    nesterov: { title: "Nesterov's momentum", factor: 0.16, knob: "beta", memory: true, plainly: "gradient flow", make: (f, o) => momentum(f, o.h, o.beta, true),
      rule: "v ← βv + ∇E, θ ← θ − h(∇E + βv)", loss: "E + (s/4)·(1 − β + 2β²)/(1 − β)·|∇E|² with s = h/(1 − β)" },
    adam: { title: "Adam", factor: 0.3, knob: "beta", memory: true, plainly: "flow of Adam's update", own: true, make: (f, o) => adam(f, o.h, o.beta),
      rule: "θ ← θ − h m/(√v + 0.3), averages with β and 0.9", loss: "no loss: a field of its own" },
    sam: { title: "SAM", factor: 1, knob: "rho", plainly: "flow of SAM's gradient", own: true, make: (f, o) => sam(f, o.h, o.rho),
      rule: "θ ← θ − h∇E(θ + ρ∇E/|∇E|)", loss: "about E + ρ|∇E|, corrected for h" },
    penalty: { title: "explicit penalty", factor: 1, knob: "mu", plainly: "flow of E + μ|∇E|²", own: true, make: (f, o) => penalty(f, o.h, o.mu),
      rule: "θ ← θ − h∇(E + μ|∇E|²)", loss: "P + (h/4)|∇P|² with P = E + μ|∇E|²" },
  };
  const KNOBS = {
    beta: { title: "momentum β", range: [0, 0.9], first: 0.6 }, rho: { title: "radius ρ", range: [0.001, 0.5], first: 0.03 },
    mu: { title: "penalty μ", range: [0, 0.5], first: 0.02 },
  };
  return { table, KNOBS };
})();
