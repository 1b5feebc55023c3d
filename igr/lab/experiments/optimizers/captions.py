"""The captions of the figures of the optimizers."""

from igr.lab.plots.captions import Caption

CAPTIONS = {
    "optimizers-paths": Caption(
        "Figure 1a for other optimizers",
        "Each optimizer with its plain and its modified flow on the two-parameter model, from start I of the paper, at "
        "a moderate learning rate. The flows begin after six steps, when the optimizer has a memory. Adaptive "
        "optimizers stay on the path of their flow but run ahead of it or behind it. The lower row therefore shows the "
        "last steps, with markers at the same times.",
        ("optimizers.order",),
    ),
    "optimizers-orders": Caption(
        "Distance to the flows against the learning rate, two parameters",
        "The distance from the optimizer to four flows at the end of the path: the plain flow, the modified flow, and "
        "the flows of two wrong rules, in which gradients are k steps late or half a step late. The numbers are the "
        "observed orders of the first two.",
        ("optimizers.order", "optimizers.momentum-rate"),
    ),
    "optimizers-table": Caption(
        "All constructors",
        "The observed orders for the plain and for the modified flow; blue where they are 1 and 2 and each wrong "
        "rule has first order, red elsewhere. The last rows are transformations that are refused, and why.",
        ("optimizers.order", "optimizers.network-order", "optimizers.refused"),
    ),
    "optimizers-networks": Caption(
        "Distance to the flows against the learning rate, networks on digits",
        "The same on 64-16-10 networks with tanh, GELU and ReLU, full batch: the path is 0.2 long at its initial speed "
        "and is divided into more and more steps.",
        ("optimizers.network-order",),
    ),
    "optimizers-map": Caption(
        "Adam's correction over its two decay rates",
        "Left, the size of the correction relative to the update: red where it acts against a penalty on the one-norm "
        "of the gradient, blue where it acts as one. Right, what Adam does: the relative difference of the one-norm "
        "from its plain flow; red where it arrives at larger gradients. Both are white on the diagonal.",
        ("optimizers.adam-sign",),
    ),
    "optimizers-practice": Caption(
        "How close a network stays to its modified flow at rates of practice",
        "The distance after 100 steps to the modified flow over that to the plain flow, against the learning rate, "
        "after a run-in. Above the dotted line, at 1, the rule is of no use.",
        ("optimizers.practice", "optimizers.adamw-one-norm"),
    ),
    "optimizers-along": Caption(
        "Distances along the way",
        "The distance from the optimizer to the four flows at each step after the run-in, on a tanh network, at one "
        "learning rate for each optimizer.",
        ("optimizers.practice",),
    ),
    "optimizers-momentum": Caption(
        "Momentum's penalty in units of that of gradient descent",
        "How far momentum leaves the gradient flow, projected on how far gradient descent of the same effective rate "
        "leaves it, after 100 steps. No formula of a modified flow is used; the line is the predicted factor.",
        ("optimizers.momentum-rate",),
    ),
    "optimizers-batches": Caption(
        "SGD: reversed pairs of epochs",
        "The distance to the flows of the loss, of the loss with the penalty of full-batch descent, and of the loss "
        "with the mean squared norm of batch gradients (Smith et al.).",
        ("optimizers.batches",),
    ),
}
