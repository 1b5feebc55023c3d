"""The captions of the figures of the theorem on networks."""

from igr.lab.plots.captions import Caption

CAPTIONS = {
    "theorem-orders": Caption(
        "Theorem 3.1 on networks: distance to descent against the learning rate",
        "The distance between gradient descent and each flow at the same physical time, one line per seed, one panel "
        "per network. Bold numbers are the slopes between the two smallest rates: the theorem says 1 for the gradient "
        "flow and 2 for the modified flow. Distances that the solver's error could change by 5 % are left out.",
        ("theorem.order", "theorem.one-step-order", "theorem.kinks"),
    ),
    "theorem-paths": Caption(
        "Theorem 3.1 on networks: distances along the path",
        "Above: the distance between gradient descent and each flow along the path at one learning rate, one line per "
        "seed. Below: the distance to the modified flow over that to the gradient flow for every rate, thin lines for "
        "seeds and thick ones for their median; where a line rises above 1, the modified flow has lost its lead.",
        ("theorem.closer-to-modified-flow", "theorem.lead", "theorem.lead-ends-at-edge"),
    ),
}
