"""The captions of the figures of the MLPs."""

from igr.lab.plots.captions import Caption

DOTS = (
    "One dot per network: colour is the learning rate, marker the width. Hollow grey dots never fit their training set "
    "exactly and are excluded from the numbers; crosses at the upper edge diverged."
)
CURVES = "Thin lines are seeds, thick lines their median. Colour and line style are the learning rate."

CAPTIONS = {
    "mlp-2": Caption(
        "Figure 2: R_IG and test accuracy against the implicit rate",
        f"At the time of maximum test accuracy, against lambda = hm/4. {DOTS}",
        ("mlp.networks-fit", "mlp.r-ig-falls-with-lambda.max-test", "mlp.accuracy-grows-with-lambda.max-test"),
    ),
    "mlp-controls": Caption(
        "Controls: equal training loss, equal width, and the time of the comparison",
        "Left: the slope at equal training loss against the learning rate, one line for each width (medians; dots are "
        "networks). Middle and right: the correlation of h with R_IG/E at equal physical time, and with the slope at "
        "equal training loss, within each width (grey) and in the mean (blue, with its 95 % interval). Where the blue "
        "band is above zero, larger learning rates have the larger value. The dotted line is the time of figure A.5.",
        ("mlp.equal-loss", "mlp.within-width"),
    ),
    "mlp-A6": Caption(
        "Figure A.6: learning rate, width and batch size",
        "R_IG and test accuracy against h and against the width, and test accuracy against R_IG by batch size and "
        f"by width. {DOTS}",
        (
            "mlp.r-ig-falls-with-h",
            "mlp.r-ig-falls-with-width",
            "mlp.accuracy-grows-with-h",
            "mlp.accuracy-grows-with-width",
            "mlp.accuracy-falls-with-r-ig",
            "mlp.full-batch",
            "mlp.within-width.r-ig-falls-with-h",
            "mlp.within-width.accuracy-grows-with-h.max-test",
            "mlp.within-rate",
            "mlp.accuracy-depends-on-lambda-alone",
        ),
    ),
    "mlp-3a": Caption(
        "Figure 3a: slopes around the optimum",
        "The slope of the loss after multiplicative noise on the parameters of maximum test accuracy, by learning "
        "rate: median over realizations and seeds, quartiles dashed.",
        ("mlp.slope-falls-with-h", "mlp.equal-loss"),
    ),
    "mlp-3b": Caption(
        "Figure 3b: test accuracy under parameter noise",
        "Test accuracy after multiplicative noise on the parameters, by learning rate: mean over realizations and "
        "seeds, one standard deviation dashed.",
        ("mlp.accuracy-under-noise-grows-with-h",),
    ),
    "mlp-A3": Caption(
        "Figure A.3: training curves against the iteration",
        f"One network size. {CURVES}",
        tuple(f"mlp.{id}.equal-steps" for id in ("r-ig-falls-with-lambda", "ratio-falls-with-lambda",
                                                 "accuracy-grows-with-lambda", "ratio-falls-with-h")),
    ),
    "mlp-A4": Caption(
        "Figure A.4: test curves against the iteration",
        f"One network size. {CURVES}",
        ("mlp.ratio-falls-with-lambda.max-test", "mlp.ratio-falls-with-h.max-test"),
    ),
    "mlp-A5": Caption(
        "Figure A.5: training curves against the physical time",
        f"The same against t = ih, the time of the flow that the steps follow. {CURVES}",
        tuple(f"mlp.{id}.equal-time" for id in ("r-ig-falls-with-lambda", "ratio-falls-with-lambda",
                                                "accuracy-grows-with-lambda", "ratio-falls-with-h",
                                                "within-width.accuracy-grows-with-h",
                                                "within-width.ratio-falls-with-h")),
    ),
    "mlp-activations": Caption(
        "ReLU, tanh and GELU",
        "R_IG and test accuracy against the learning rate, for each seed that fits its training set and for the mean. "
        "Not in the paper.",
        ("mlp.tanh", "mlp.gelu"),
    ),
}  # fmt: skip
