"""What the trained networks say about the paper's four predictions: rank correlations over models, with intervals.

A network counts where it fits its training set exactly, as in the paper; the others are counted and named. A verdict
asks whether the 95 % interval (bootstrap over models, seeds of a model together) lies on the predicted side of zero:
`holds`; on the other side: `fails`; across zero: `mixed`.
"""

import numpy as np

from igr.lab.correlation import correlation
from igr.lab.findings import Finding, Verdict
from igr.lab.history import Cohort, cohort, pick
from igr.lab.store import Run, Table

NOISE = 0.5  # the slope after this noise, and the accuracies up to it, where networks still differ


def of(runs: Table, activation: str = "relu", batch_size: int | None = 32, width: int | None = None) -> Table:
    """The stored stacks of one kind."""
    shapes = ((run, run.config.shape) for run in runs)
    return [
        run
        for run, shape in shapes
        if shape.activation == activation
        and batch_size in (None, shape.batch_size)
        and width in (None, shape.width)
        and not any(run.config.mus)
    ]


def focus_width(runs: Table) -> int:
    """The width at which noise, batch sizes and activations were tried."""
    return next((run.config.shape.width for run in runs if run.config.shape.noise.sigmas), 0)


def findings(runs: Table) -> list[Finding]:
    """The four predictions, the stopping rules, batch sizes and activations, each where its runs are stored."""
    grid = of(runs)
    found = []
    if grid:
        everyone = cohort(grid)
        best = pick(everyone, everyone["fitted"])
        found += [_counted(everyone), *_rules(grid, focus_width(runs)), *_grid(best)]
    focus = focus_width(runs)
    noisy = of(runs, width=focus)
    if noisy and focus:
        found += _noise(noisy)
        found += _batches(of(runs, batch_size=None, width=focus))
        found += [f for name in ("tanh", "gelu") for f in _activation(of(runs, name, width=focus), name)]
    return found


def _counted(everyone: Cohort) -> Finding:
    fitted, diverged = everyone["fitted"], everyone["diverged"] >= 0
    claim = "Networks of the grid fit the training set exactly (the others are excluded, as in the paper)"
    out = pick(everyone, ~fitted)
    tally = {
        h: int((out["learning_rate"] == h).sum()) for h in sorted(set(out["learning_rate"].tolist()), reverse=True)
    }
    note = f"{int(diverged.sum())} diverged; excluded by learning rate: " + ", ".join(
        f"{h:g}: {n}" for h, n in tally.items()
    )
    sort = Verdict.HOLDS if fitted.all() else Verdict.MIXED if fitted.any() else Verdict.FAILS
    quantity = "networks that reach 100 % training accuracy"
    return Finding(
        claim, "appendix A.5", quantity, float(fitted.sum()), len(fitted), sort, note=note if len(tally) else ""
    )


def _grid(best: Cohort) -> list[Finding]:
    one = "prediction 1, figures 2a, A.6"
    two = "prediction 3, figures 2b, A.6"
    claims = [
        correlation("R_IG falls as h grows", one, best, "learning_rate", "r_ig", -1),
        correlation("R_IG falls as the networks grow", one, best, "width", "r_ig", -1),
        correlation("Test accuracy grows with h", two, best, "learning_rate", "test_accuracy", +1),
        correlation("Test accuracy grows with the networks", two, best, "width", "test_accuracy", +1),
        correlation("Networks with smaller R_IG test better", "figure A.6", best, "r_ig", "test_accuracy", -1),
    ]
    claim, note = "Networks with smaller R_IG test better", "mediated by lambda where this is not negative"
    given = correlation(
        f"{claim} also among those of equal lambda", "not in the paper", best, "r_ig", "test_accuracy", -1,
        "implicit_rate", note,
    )  # fmt: skip
    return [*claims, given]


def rule_settings(grid: Table) -> list[tuple[str, float | None, str]]:
    """The three stopping rules of the paper, and maximum validation accuracy where images were held out."""
    steps = min(int(run.metrics["step"][-1]) for run in grid)
    middle = float(np.median(np.unique(np.concatenate([run.metrics["learning_rate"] for run in grid]))))
    time, held = steps * middle, all("validation_accuracy" in run.metrics for run in grid)
    return [
        ("max_test", None, "at maximum test accuracy"),
        ("iteration", steps, f"after {steps:,} steps"),
        ("time", time, f"at physical time {time:,.4g}, rates from {middle:g} on"),
        *([("max_validation", None, "at maximum validation accuracy")] if held else []),
    ]


def _rules(grid: Table, focus: int) -> list[Finding]:
    found = []
    for rule, at, words in rule_settings(grid):
        table = cohort(grid, rule, at)
        table = pick(table, table["fitted"])
        table["r_ig / loss"] = table["r_ig"] / table["loss"]
        paper = {"max_test": "figure A.4", "iteration": "figure A.3", "time": "figure A.5"}.get(
            rule, "not in the paper"
        )
        one, two = ("prediction 1, figure 2a", "prediction 3, figure 2b") if rule == "max_test" else (paper, paper)
        found += [
            correlation(f"R_IG falls as lambda grows, {words}", one, table, "implicit_rate", "r_ig", -1),
            correlation(f"R_IG/E falls as lambda grows, {words}", paper, table, "implicit_rate", "r_ig / loss", -1),
            correlation(f"Test accuracy grows with lambda, {words}", two, table, "implicit_rate", "test_accuracy", +1),
        ]
        if (table["width"] == focus).any():  # R_IG has m in its denominator: at one width only h can speak
            one_width = pick(table, table["width"] == focus)
            claim = f"R_IG/E falls as h grows at n_l = {focus}, {words}"
            found.append(correlation(claim, paper, one_width, "learning_rate", "r_ig / loss", -1, networks=True))
    return found


def noise_table(noisy: Table) -> Cohort:
    """One row a network: its slopes and accuracies without and with noise. A slope is the median over realizations."""
    table = cohort(noisy)
    sigma = noisy[0].metrics["noise_sigma"]
    near, low = int(np.argmin(np.abs(sigma - NOISE))), sigma <= NOISE
    slopes = [np.median(run.metrics["noise_slope"], axis=2) for run in noisy]
    accuracies = [run.metrics["noise_test_accuracy"].mean(axis=2) for run in noisy]
    table["slope after noise"] = np.concatenate([values[:, near] for values in slopes])
    table["accuracy under noise"] = np.concatenate([values[:, low].mean(axis=1) for values in accuracies])
    return pick(table, table["fitted"])


def _noise(noisy: Table) -> list[Finding]:
    table = noise_table(noisy)
    words = f"n_l = {noisy[0].config.shape.width}"
    two, four = "prediction 2, figure 3a", "prediction 4, figure 3b"
    return [
        correlation(f"Slopes at the optimum fall as h grows, {words}", two, table, "learning_rate", "slope", -1),
        correlation(
            f"Slopes after {NOISE:.0%} noise fall as h grows, {words}", two, table, "learning_rate",
            "slope after noise", -1, note="median over realizations, training set",
        ),
        correlation(
            f"Test accuracy under noise grows with h, {words}", four, table, "learning_rate",
            "accuracy under noise", +1, note=f"mean over realizations and noise up to {NOISE:.0%}",
        ),
    ]  # fmt: skip


def _batches(runs: Table) -> list[Finding]:
    table = cohort(runs)
    table = pick(table, table["fitted"])
    sizes = sorted(set(table["batch_size"].tolist())) if table else []
    if len(sizes) < 2:
        return []
    names = ", ".join("full" if size == 0 else str(size) for size in sizes)
    words = f"across batch sizes ({names}), n_l = {runs[0].config.shape.width}"
    found = [
        correlation(f"Networks with smaller R_IG test better {words}", "figure A.6", table, "r_ig", "test_accuracy", -1)
    ]
    full = pick(table, table["batch_size"] == 0)
    if len(full["seed"]):
        claim = "Without mini-batch noise (full batch) R_IG falls as h grows"
        found.append(correlation(claim, "figure A.6", full, "learning_rate", "r_ig", -1))
    return found


def _activation(runs: Table, name: str) -> list[Finding]:
    if not runs:
        return []
    table = cohort(runs)
    table = pick(table, table["fitted"])
    where = "not in the paper"
    return [
        correlation(f"R_IG falls as h grows with {name}", where, table, "learning_rate", "r_ig", -1),
        correlation(f"Test accuracy grows with h with {name}", where, table, "learning_rate", "test_accuracy", +1),
    ]


def best_accuracies(runs: list[Run]) -> dict[float, float]:
    """The best test accuracy of each learning rate, over widths and seeds."""
    table = cohort(runs)
    rates = sorted(set(table["learning_rate"].tolist()), reverse=True)
    return {h: float(np.nanmax(table["test_accuracy"][table["learning_rate"] == h])) for h in rates}
