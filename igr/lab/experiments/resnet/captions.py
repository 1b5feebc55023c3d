"""The captions of the figures of the ResNets."""

from igr.lab.plots.captions import Caption

SELECTED = "Accuracies are test accuracies at the epoch of best validation accuracy. Time is counted in gradients."
GRID = tuple(f"resnet.{id}" for id in ("r-ig-falls-with-h", "accuracy-grows-with-h"))

CAPTIONS = {
    "resnet-A7": Caption(
        "Figure A.7: training of ResNet-18",
        "Test accuracy, R_IG, slope, parameter norm, training loss and training accuracy against the iteration, by "
        "learning rate. Thin lines are seeds, thick lines their median. Dots are measurements on the whole training "
        "set. Where these are costly, only the first seed has them along its path; rings are the other seeds at their "
        "end.",
        ("resnet.networks-fit", *GRID, "resnet.slope-falls-with-h"),
    ),
    "resnet-A8": Caption(
        "Figure A.8: learning rate, R_IG and test accuracy",
        "At the time of maximum test accuracy, one dot per network: full where it fits its training set exactly, "
        "hollow where it does not, a cross at the upper edge where it diverged. Only diverged networks are left out of "
        "the numbers.",
        (*GRID, "resnet.accuracy-falls-with-r-ig"),
    ),
    "resnet-3c": Caption(
        "Figure 3c: explicit gradient regularization",
        "(a) Test accuracy with and without the penalty against time, at the rate where the penalty helps most. (b) "
        "Best validation accuracy of the first seed for all rates and mu, the best mu of each rate framed. (c) The "
        "boost at each rate in points, one square per seed, and the mean. The rate and mu are chosen on held-out "
        "images.",
        (
            "resnet.penalty-raises-accuracy",
            "resnet.boost-of-12-points",
            "resnet.best-penalty-beats-best-rate",
            "resnet.r-ig-falls-with-mu",
            "resnet.penalty-raises-accuracy-7x7",
        ),
    ),
    "resnet-3c-cost": Caption(
        "The cost of the penalty and its alternatives",
        "(a) The penalty at every step, at every k-th step and after a warm-up, and SAM, beside plain training; those "
        "of equal cost stand side by side. (b) Test accuracy against the total rate h + 4 mu; arrows lead from a large "
        "step to a small step with penalty of equal total rate. (c) The 3x3 and the 7x7 stem. "
        f"{SELECTED} Not in the paper.",
        (
            "resnet.penalty-at-every-kth-step-beats-plain",
            "resnet.penalty-after-warm-up-beats-plain",
            "resnet.sam-beats-plain",
            "resnet.penalty-beats-sam",
            "resnet.penalty-replaces-step",
            "resnet.penalty-raises-accuracy-7x7",
        ),
    ),
}
