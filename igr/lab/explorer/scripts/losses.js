"use strict";
// The losses of igr.lab.explorer.losses, with their derivatives written out up to the third.
// derivatives(a, b) is [E, Ea, Eb, Eaa, Eab, Ebb, Eaaa, Eaab, Eabb, Ebbb].
const Losses = (() => {
  const Y = 0.6, X = [-2, -1, 0.5, 1, 2], TARGETS = [-1.2, -1, 0.7, 1, 0.9], WEIGHTS = [2, -1];
  const view = (left, low, width) => ({ left, low, width, height: 0.8 * width });

  // Whether a straight step passes a minimum: a b - y is a quadratic along it, changing sign or turning on the other side.
  function crosses([a, b], [c, d]) {
    const c0 = a * b - Y, c1 = a * (d - b) + b * (c - a), c2 = (c - a) * (d - b), last = c * d - Y;
    const turn = -c1 / (c2 === 0 ? 1 : 2 * c2), middle = c0 + turn * (c1 + turn * c2);
    return c0 * last < 0 || (c2 !== 0 && turn > 0 && turn < 1 && c0 * middle < 0);
  }

  const product = {
    title: "the paper's two-parameter model", formula: "E(a, b) = (0.6 − a b)² / 2",
    about: "Its minima are a line, a b = 0.6. The cross is the minimum of least norm, which is also the flattest one.",
    derivatives(a, b) {
      const r = a * b - Y;
      return [r * r / 2, r * b, r * a, b * b, a * b + r, a * a, 0, 2 * b, 2 * a, 0];
    },
    value: (a, b) => (Y - a * b) ** 2 / 2,
    arrived: (d) => d[0] < 1e-12, crosses,
    lazy: (descent, plain) => Math.abs((descent.end[0] ** 2 + descent.end[1] ** 2) / (plain.end[0] ** 2 + plain.end[1] ** 2) - 1) < 0.01,
    lazily: "R_IG/E at the end is within 1 % of the plain flow's", passing: "passes over the line of minima",
    start: [2.8, 3.5], views: [view(0, 0, 5.25), view(-5.5, -4.4, 11)], horizon: 60, most: 20000, quantity: "norm",
    marks: [[Math.sqrt(Y), Math.sqrt(Y), "least norm"]], line: (a) => Y / a, rates: [0.001, 0.3], h: 0.025,
  };

  const twoValleys = {
    title: "two valleys", formula: "E(a, b) = (a² − 1)² / 4 + 2 e^(−0.7 a) b²",
    about: "The minimum on the left is sharp, the one on the right is flat. Near the ridge between them a small difference decides.",
    derivatives(a, b) {
      const e = 2 * Math.exp(-0.7 * a), s = -0.7;
      return [(a * a - 1) ** 2 / 4 + e * b * b, a * (a * a - 1) + s * e * b * b, 2 * e * b, 3 * a * a - 1 + s * s * e * b * b,
        2 * s * e * b, 2 * e, 6 * a + s ** 3 * e * b * b, 2 * s * s * e * b, 2 * s * e, 0];
    },
    value: (a, b) => (a * a - 1) ** 2 / 4 + 2 * Math.exp(-0.7 * a) * b * b,
    start: [-0.375, 1.5], views: [view(-1.6, -0.62, 3.2), view(-3, -2.2, 6)], horizon: 40, quantity: "a",
    marks: [[-1, 0, "sharp"], [1, 0, "flat"]], rates: [0.002, 0.4], h: 0.08,
  };

  const valley = {
    title: "a curved valley (Rosenbrock's)", formula: "E(a, b) = (1 − a)² / 2 + 5 (b − a²)² / 2",
    about: "The valley is steep across and slow along its floor. The minimum is at (1, 1).",
    derivatives(a, b) {
      const q = b - a * a;
      return [(1 - a) ** 2 / 2 + 5 * q * q / 2, a - 1 - 10 * a * q, 5 * q, 1 - 10 * q + 20 * a * a, -10 * a, 5, 60 * a, -10, 0, 0];
    },
    value: (a, b) => (1 - a) ** 2 / 2 + 5 * (b - a * a) ** 2 / 2,
    start: [-1.2, 0.2], views: [view(-1.75, -0.8, 3.5), view(-3, -1.6, 6)], horizon: 40, quantity: "gap",
    marks: [[1, 1, "minimum"]], rates: [0.002, 0.15], h: 0.02, rest: 2e-3,
  };

  function atPoint(a, b, i) {       // output and its derivatives by each weight at one point; there are no mixed ones
    const t = Math.tanh(a * X[i]), u = Math.tanh(b * X[i]), x = X[i], p = 1 - t * t, q = 1 - u * u, [v, w] = WEIGHTS;
    return [v * t + w * u, v * x * p, w * x * q, -2 * v * x * x * t * p, -2 * w * x * x * u * q,
      v * x ** 3 * p * (6 * t * t - 2), w * x ** 3 * q * (6 * u * u - 2)];
  }
  const network = {
    title: "a network of two tanh neurons", formula: "E(a, b) = mean (f(x) − y)² / 2 over 5 points, f(x) = 2 tanh(a x) − tanh(b x)",
    about: "a and b are the two trained weights. The points, and what the network makes of them at this step, are drawn below.",
    derivatives(a, b) {
      const sum = new Array(10).fill(0);
      for (let i = 0; i < X.length; i++) {
        const [f, fa, fb, faa, fbb, faaa, fbbb] = atPoint(a, b, i), r = f - TARGETS[i];
        const each = [r * r / 2, r * fa, r * fb, fa * fa + r * faa, fa * fb, fb * fb + r * fbb,
          3 * fa * faa + r * faaa, faa * fb, fa * fbb, 3 * fb * fbb + r * fbbb];
        for (let k = 0; k < 10; k++) sum[k] += each[k] / X.length;
      }
      return sum;
    },
    value(a, b) {
      let sum = 0;
      for (let i = 0; i < X.length; i++) sum += (2 * Math.tanh(a * X[i]) - Math.tanh(b * X[i]) - TARGETS[i]) ** 2;
      return sum / 2 / X.length;
    },
    start: [-0.6, 0.3], views: [view(-1.6, -2, 4.2), view(-4, -3.2, 8)], horizon: 150, quantity: "b",
    marks: [], rates: [0.01, 0.6], h: 0.08, rest: 2e-3, near: 0.02,
    points: X.map((x, i) => [x, TARGETS[i]]), output: ([a, b], x) => 2 * Math.tanh(a * x) - Math.tanh(b * x),
  };

  const general = {
    near: 0.05, most: 3000,
    lazy: (descent, plain, gap) => gap < 0.01 * Math.hypot(plain.end[0] - plain.points[0][0], plain.end[1] - plain.points[0][1]),
    lazily: "descent is never further from the plain flow than 1 % of the way from start to end", passing: "turns back against the step before it",
  };
  const all = { valleys: twoValleys, product, rosenbrock: valley, network };
  for (const [id, loss] of Object.entries(all)) {
    const { rest = 1e-6 } = loss;     // a path ends where the slope falls below this; that of SAM, which hovers around a minimum, below `near`
    all[id] = { id, arrived: (d) => Math.hypot(d[1], d[2]) < rest, ...general, ...loss };
  }
  return all;
})();
