"""What the figures of the two-parameter model show, in words."""

from igr.lab.captions import Caption

CAPTIONS = {
    "two-parameter-1a": Caption(
        "Figure 1a: paths from two starts to the line of minima",
        "Gradient descent at a small and at a moderate rate, the modified flow and the explicitly regularized flow, in "
        "the plane of the two parameters. Left, flows by the paper's Euler steps; right, solved to tight tolerances. "
        "Dots mark ends, the dashed line the minima, the cross their point of least norm. Dotted: Euler steps that "
        "leap over the line of minima, where they follow no flow.",
        r"figure 1a\b|h_Euler|Equation 8",
    ),
    "two-parameter-distances": Caption(
        "The distances behind figure 1a",
        "At each step of descent at the moderate rate: how far it is from the modified flow and from the gradient flow "
        "at the same time.",
        r"closer to the modified flow",
    ),
    "two-parameter-1b": Caption(
        "Figure 1b: R_IG/E at the end of training against the learning rate",
        "Each point is one run from start I until E < 1e-12. On the line of minima R_IG/E is the squared norm and the "
        "largest eigenvalue of the Hessian at once. Circles, squares and triangles are lazy, moderate and ricochet "
        "rates; the dash-dotted curve is where the modified flow ends.",
        r"figure 1b\b|No learning rate reaches",
    ),
    "two-parameter-A1": Caption(
        "Figure A.1: a step that is too long ricochets",
        "The path at the large rate beside the one at the small rate: its first step passes over both branches of the "
        "minima, and it settles at a minimum no flatter than the gradient flow's.",
        r"line of minima begin",
    ),
    "two-parameter-A2": Caption(
        "Figure A.2: test error against the explicit rate",
        "The error at the test point of the paper against mu, which multiplies R_IG here, at the end of training and "
        "at fixed times before it. At every minimum ab = y/x, so at the end the test error cannot depend on mu.",
        r"figure A\.2\b",
    ),
    "two-parameter-phases": Caption(
        "The phases of the learning rate",
        "Lazy, moderate, ricochet and divergent rates as observed (shades) and where theory puts their boundaries "
        "(lines), with h times the largest eigenvalue of the Hessian at the start, along the path and at the end.",
        r"h lambda_max|changes R_IG/E by 1 %",
    ),
}
