"""The captions of the figures of the two-parameter model."""

from igr.lab.plots.captions import Caption

CAPTIONS = {
    "two-parameter-1a": Caption(
        "Figure 1a: paths from two starts to the line of minima",
        "Gradient descent at a small and at a moderate rate, the modified flow and the explicitly regularized flow, in "
        "the plane of the two parameters. Left: flows by the paper's Euler steps. Right: flows solved to tight "
        "tolerances. Dots are ends, the dashed line is the line of minima, the cross its point of least norm. Dotted "
        "lines are Euler steps that cross the line of minima, where they follow no flow.",
        (
            "two-parameter.closer-to-modified-flow",
            "two-parameter.explicit-reaches-least-norm",
            "two-parameter.euler-step-small-enough",
            "two-parameter.mu-multiplies-r-ig",
        ),
    ),
    "two-parameter-distances": Caption(
        "Figure 1a in numbers: distances to both flows",
        "The distance of gradient descent at the moderate rate to the modified flow and to the gradient flow at the "
        "same time, for each step.",
        ("two-parameter.closer-to-modified-flow",),
    ),
    "two-parameter-1b": Caption(
        "Figure 1b: R_IG/E at the end of training against the learning rate",
        "Each point is one run from start I until E < 1e-12. On the line of minima R_IG/E equals both the squared norm "
        "and the largest eigenvalue of the Hessian. Circles, squares and triangles are lazy, moderate and ricochet "
        "rates; the dash-dotted curve is the end of the modified flow.",
        ("two-parameter.norm-falls-with-h", "two-parameter.no-rate-as-flat-as-explicit"),
    ),
    "two-parameter-A1": Caption(
        "Figure A.1: the path at a large learning rate (ricochet)",
        "The path at the large rate beside the one at the small rate. Its first step crosses both branches of the "
        "minima, and it ends at a minimum no flatter than that of the gradient flow.",
        ("two-parameter.phases.ricochet",),
    ),
    "two-parameter-A2": Caption(
        "Figure A.2: test error against the explicit rate",
        "The error at the test point of the paper against mu, which multiplies R_IG here, at the end of training and "
        "at fixed times before it. Every minimum has ab = y/x, so at the end the test error cannot depend on mu.",
        ("two-parameter.test-error-falls-with-mu",),
    ),
    "two-parameter-phases": Caption(
        "The phases of the learning rate",
        "Lazy, moderate, ricochet and divergent rates as observed (shades) and the boundaries that theory predicts "
        "(lines), with h times the largest eigenvalue of the Hessian at the start, along the path and at the end.",
        ("two-parameter.phases",),
    ),
}
