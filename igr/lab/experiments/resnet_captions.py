"""What the figures of the ResNets show, in words."""

from igr.lab.captions import Caption

SELECTED = "Accuracies are test accuracies at the epoch of best validation accuracy, and time is counted in gradients."

CAPTIONS = {
    "resnet-A7": Caption(
        "Figure A.7: ResNet-18 by iteration",
        "Test accuracy, R_IG, slope, parameter norm, training loss and training accuracy against the iteration, by "
        "learning rate. Thin: each seed; thick: their median. R_IG and what else needs the whole training set is "
        "measured where the dots are; where that is costly, along the path of the first seed alone, and rings are the "
        "others at their end.",
        r"A\.7\b",
    ),
    "resnet-A8": Caption(
        "Figure A.8: learning rate, R_IG and test accuracy",
        "At the time of maximum test accuracy, a dot a network: full where it fits its training set exactly, hollow "
        "where not, a cross at the upper edge where it diverged. Only diverged ones are left out of the numbers.",
        r"A\.8\b",
    ),
    "resnet-3c": Caption(
        "Figure 3c: explicit gradient regularization",
        "Test accuracy with and without penalty at the rate where the penalty helps most, against time (a); the whole "
        "search, best validation accuracy of the first seed, the best mu of each rate framed (b); the boost at each "
        "rate in points, a square a seed, with the mean (c). The rate and mu are chosen on held-out images.",
        r"3c\b|equation 8",
    ),
    "resnet-3c-cost": Caption(
        "What the penalty costs, and what could replace it",
        "The penalty at every step, at every k-th step, after a warm-up, and SAM beside plain training, those of equal "
        "cost side by side (a); test accuracy against the total rate h + 4 mu, arrows from a large step to a small "
        f"step with penalty of the same total (b); both stems (c). {SELECTED} Not in the paper.",
        r"in its time|equal time|h \+ 4 mu|7x7",
    ),
}
