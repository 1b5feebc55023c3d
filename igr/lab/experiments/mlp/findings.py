"""What the trained MLPs say about the paper's four predictions: rank correlations over networks, with intervals.

A network counts where it fits its training set exactly, as in the paper; how many do not is a finding of its own. The
verdicts are those of `igr.lab.analysis.correlation`.
"""

from igr.lab.analysis.cohort import Cohort, cohort, pick
from igr.lab.analysis.correlation import correlation
from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.analysis.strata import within
from igr.lab.experiments.mlp import beyond
from igr.lab.experiments.mlp.claims import claims
from igr.lab.experiments.mlp.controls import controls
from igr.lab.experiments.mlp.runs import NOISE, fitted_cohort, focus_width, noise_table, of, rule_settings
from igr.lab.store.store import Table

BEYOND = "not in the paper"
LARGE = 512  # a batch size from which on batches of one rate differ little


def findings(runs: Table) -> list[Finding]:
    """The four predictions, the stopping rules, batch sizes and activations, each where its runs are stored."""
    grid, focus = of(runs), focus_width(runs)
    found = []
    if grid:
        found += [
            _counted(cohort(grid)),
            *_rules(grid, focus),
            *_grid(fitted_cohort(grid)),
            *controls(grid),
            *claims(grid),
        ]
    noisy = of(runs, width=focus)
    if noisy and focus:
        found += _noise(noisy)
        found += _batches(of(runs, batch_size=None, width=focus))
        found += [f for name in ("tanh", "gelu") for f in _activation(of(runs, name, width=focus), name)]
    return found + beyond.findings(runs)


def _counted(everyone: Cohort) -> Finding:
    fitted, diverged = everyone["fitted"], everyone["diverged"] >= 0
    rates = everyone["learning_rate"][~fitted].tolist()
    listed = ", ".join(f"{h:g}: {rates.count(h)}" for h in sorted(set(rates), reverse=True))
    note = f"{int(diverged.sum())} diverged; excluded by learning rate: {listed}" if rates else ""
    return Finding(
        "Networks of the grid fit the training set exactly (the others are excluded, as in the paper)",
        "appendix A.5",
        "networks that reach 100 % training accuracy",
        float(fitted.sum()),
        len(fitted),
        Verdict.HOLDS if fitted.all() else Verdict.MIXED if fitted.any() else Verdict.FAILS,
        note=note,
        id="mlp.networks-fit",
    )


def _grid(best: Cohort) -> list[Finding]:
    one, two = "prediction 1, figures 2a, A.6", "prediction 3, figures 2b, A.6"
    h, accuracy, smaller = "learning_rate", "test_accuracy", "Networks with smaller R_IG have higher test accuracy"
    return [
        correlation("mlp.r-ig-falls-with-h", "R_IG falls as h grows", one, best, h, "r_ig", -1),
        correlation("mlp.r-ig-falls-with-width", "R_IG falls as the width grows", one, best, "width", "r_ig", -1),
        correlation("mlp.accuracy-grows-with-h", "Test accuracy grows with h", two, best, h, accuracy, +1),
        correlation(
            "mlp.accuracy-grows-with-width", "Test accuracy grows with the width", two, best, "width", accuracy, +1
        ),
        correlation("mlp.accuracy-falls-with-r-ig", smaller, "figure A.6", best, "r_ig", accuracy, -1),
        correlation(
            "mlp.accuracy-falls-with-r-ig.given-lambda", f"{smaller} at equal lambda", BEYOND, best, "r_ig", accuracy,
            -1, "implicit_rate", "if this is not negative, lambda explains the correlation",
        ),
    ]  # fmt: skip


def _rules(grid: Table, focus: int) -> list[Finding]:
    found, places = [], {"max_test": "figure A.4", "iteration": "figure A.3", "time": "figure A.5"}
    for rule, at, part, words in rule_settings(grid):
        table, paper = fitted_cohort(grid, rule, at), places.get(rule, BEYOND)
        one, two = ("prediction 1, figure 2a", "prediction 3, figure 2b") if rule == "max_test" else (paper, paper)
        columns = [
            ("r-ig-falls", "R_IG falls as lambda grows", one, "r_ig", -1),
            ("ratio-falls", "R_IG/E falls as lambda grows", paper, "r_ig / loss", -1),
            ("accuracy-grows", "Test accuracy grows with lambda", two, "test_accuracy", +1),
        ]
        found += [
            correlation(f"mlp.{id}-with-lambda.{part}", f"{claim}, {words}", place, table, "implicit_rate", y, sign)
            for id, claim, place, y, sign in columns
        ]
        if (table["width"] == focus).any():  # R_IG is divided by m: at one width only h can be the cause
            one_width = pick(table, table["width"] == focus)
            claim = f"R_IG/E falls as h grows at n_l = {focus}, {words}"
            id, h = f"mlp.ratio-falls-with-h.{part}", "learning_rate"
            found.append(correlation(id, claim, paper, one_width, h, "r_ig / loss", -1))
    return found


def _noise(noisy: Table) -> list[Finding]:
    table, words = noise_table(noisy), f"n_l = {noisy[0].config.shape.width}"
    two, four, h = "prediction 2, figure 3a", "prediction 4, figure 3b", "learning_rate"
    return [
        correlation(
            "mlp.slope-falls-with-h.optimum", f"Slopes at the optimum fall as h grows, {words}", two, table, h,
            "slope", -1,
        ),
        correlation(
            "mlp.slope-falls-with-h.noise", f"Slopes after {NOISE:.0%} noise fall as h grows, {words}", two, table, h,
            "slope after noise", -1, note="median over realizations, training set",
        ),
        correlation(
            "mlp.accuracy-under-noise-grows-with-h", f"Test accuracy under noise grows with h, {words}", four, table, h,
            "accuracy under noise", +1, note=f"mean over realizations and noise up to {NOISE:.0%}",
        ),
    ]  # fmt: skip


def _batches(runs: Table) -> list[Finding]:
    table = fitted_cohort(runs)
    sizes = sorted(set(table["batch_size"].tolist())) if table else []
    if len(sizes) < 2:
        return []
    names = ", ".join("full" if size == 0 else str(size) for size in sizes)
    words = f"across batch sizes ({names}), n_l = {runs[0].config.shape.width}"
    claim = f"Networks with smaller R_IG have higher test accuracy {words}"
    id = "mlp.accuracy-falls-with-r-ig.batch-sizes"
    found = [correlation(id, claim, "figure A.6", table, "r_ig", "test_accuracy", -1)]
    large = pick(table, (table["batch_size"] == 0) | (table["batch_size"] >= LARGE))
    if len(set(large["batch_size"].tolist())) > 1:
        id = "mlp.accuracy-falls-with-r-ig.large-batches"
        claim = f"Networks with smaller R_IG have higher test accuracy at batch sizes from {LARGE} on"
        found.append(correlation(id, claim, "figure A.6", large, "r_ig", "test_accuracy", -1))
    claim = "Networks with smaller R_IG have higher test accuracy at each batch size"
    id = "mlp.within-batch.accuracy-falls-with-r-ig"
    found.append(within(id, claim, "figure A.6", table, "r_ig", "test_accuracy", "batch_size", -1))
    full = pick(table, table["batch_size"] == 0)
    if len(full["seed"]):
        claim = "R_IG falls as h grows without mini-batch noise (full batch)"
        found.append(correlation("mlp.full-batch", claim, "figure A.6", full, "learning_rate", "r_ig", -1))
    return found


def _activation(runs: Table, name: str) -> list[Finding]:
    if not runs:
        return []
    table, h = fitted_cohort(runs), "learning_rate"
    return [
        correlation(
            f"mlp.{name}.r-ig-falls-with-h", f"R_IG falls as h grows with {name}", BEYOND, table, h, "r_ig", -1
        ),
        correlation(
            f"mlp.{name}.accuracy-grows-with-h", f"Test accuracy grows with h with {name}", BEYOND, table, h,
            "test_accuracy", +1,
        ),
    ]  # fmt: skip
