"""What the figures of section 6's networks show, in words."""

from igr.lab.captions import Caption

DOTS = (
    "A dot is a network: colour for its learning rate, marker for its width; hollow and grey where it never fits its "
    "training set exactly and is excluded from the numbers, a cross at the upper edge where it diverged."
)
CURVES = "Thin: each seed; thick: their median. Colour and line style are the learning rate."

CAPTIONS = {
    "mlp-2": Caption(
        "Figure 2: R_IG and test accuracy against the implicit rate",
        f"At the time of maximum test accuracy, against lambda = hm/4. {DOTS}",
        r"figures? 2[ab]\b|appendix A\.5",
    ),
    "mlp-A6": Caption(
        "Figure A.6: learning rate, width and batch size apart",
        f"R_IG and test accuracy against h and against the width, and test accuracy against R_IG by batch size and "
        f"across widths. {DOTS}",
        r"A\.6\b|equal lambda|batch",
    ),
    "mlp-3a": Caption(
        "Figure 3a: slopes around the optimum",
        "The slope of the loss after multiplicative noise on the parameters of maximum test accuracy, by learning "
        "rate: median over realizations and seeds, quartiles dashed.",
        r"figure 3a\b",
    ),
    "mlp-3b": Caption(
        "Figure 3b: test accuracy under parameter noise",
        "Test accuracy after multiplicative noise on the parameters, by learning rate: mean over realizations and "
        "seeds, one standard deviation dashed.",
        r"figure 3b\b",
    ),
    "mlp-A3": Caption("Figure A.3: training, by iteration", f"One network size. {CURVES}", r"figure A\.3\b"),
    "mlp-A4": Caption("Figure A.4: testing, by iteration", f"One network size. {CURVES}", r"figure A\.4\b"),
    "mlp-A5": Caption(
        "Figure A.5: training, by physical time",
        f"The same against t = ih, the time of the flow that the steps follow. {CURVES}",
        r"figure A\.5\b",
    ),
    "mlp-activations": Caption(
        "Other activations",
        "R_IG and test accuracy against the learning rate for ReLU, tanh and GELU: each seed that fits, and their "
        "mean. Not in the paper.",
        r"with (tanh|gelu)",
    ),
}
