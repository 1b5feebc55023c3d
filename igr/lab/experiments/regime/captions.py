"""What the figures of the regime show, in words."""

from igr.lab.plots.captions import Caption

CAPTIONS = {
    "regime-map": Caption(
        "The regime of the learning rate along training",
        "One panel for each network: the verdict at each measured step (across) and learning rate (up), of the first "
        "seed; a network that never recovers is divergent from there on. The star marks the learning rate with the "
        "best test accuracy at the end.",
        ("regime.overlap", "regime.peak", "regime.edge"),
    ),
    "regime-errors": Caption(
        "Expected against measured one-step errors",
        "Each point is one measurement: the error of one step of descent against the gradient flow and against the "
        "modified flow, relative to the length of the step. Expected: from a few Hessian-vector products at the point; "
        "measured: by solving the flow. On the dashed line they agree; dotted lines are a factor of 1.5 away. Left out "
        "is where the substeps do not solve the flow: h lambda_max above 12 (gradient flow) and 4 (modified flow).",
        ("regime.calibration", "regime.inside", "regime.marginal"),
    ),
    "regime-orders": Caption(
        "The truncation order that is best, against the learning rate",
        "For each learning rate the share of measurements at which the flow truncated at order 0 (gradient flow), 1 "
        "(modified loss) or 2 misses the step least; one panel for each network. Left out are measurements with h "
        "lambda_max above 2.7, where the substeps do not solve the flow of order 2: a rate without any has no bar.",
        ("regime.best-order",),
    ),
}
