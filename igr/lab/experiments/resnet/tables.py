"""Tables of the ResNets for pages: by learning rate, the search, and the seeds that confirm the boost."""

import numpy as np

from igr.lab.analysis.cohort import cohort
from igr.lab.analysis.markdown import markdown
from igr.lab.analysis.statistics import student
from igr.lab.experiments.resnet.boosts import PAPER_BOOST, confirming
from igr.lab.experiments.resnet.runs import (
    Outcome,
    best_rate,
    chosen,
    gains,
    grid_runs,
    matched,
    outcomes,
    pairs,
    select,
    table_rates,
)
from igr.lab.store.store import Table


def views(runs: Table) -> dict[str, str]:
    """The tables by name, where their runs are stored."""
    grid, found = grid_runs(runs), outcomes(runs)
    made = {"resnet.by-rate": by_rate(grid)} if grid else {}
    if found and table_rates(found)[0]:
        made |= {"resnet.search": search(found), "resnet.seeds": seeds(found)}
    return made


def by_rate(grid: Table) -> str:
    """Means over the seeds of the maximum of test accuracy, and medians of R_IG, slope and loss at the end."""
    best, end = cohort(grid), cohort(grid, "end")
    rates = np.unique(best["learning_rate"])

    def row(name: str, table: dict, column: str, middle: object, form: str) -> list[str]:
        at = [table[column][table["learning_rate"] == h] for h in rates]
        return [name, *(format(float(middle(values)), form) for values in at)]  # type: ignore[operator]

    return markdown(
        ["$h$", *(f"{h:g}" for h in rates)],
        [
            row("test accuracy at its maximum, mean", best, "test_accuracy", np.mean, ".3f"),
            row("training accuracy there, least", best, "train_accuracy", np.min, ".3f"),
            row("$R_{IG}$ at the end, median", end, "r_ig", np.median, ".1e"),
            row("slope at the end, median", end, "slope", np.median, ".1e"),
            row("training loss at the end, median", end, "loss", np.median, ".1e"),
        ],
    )


def search(found: list[Outcome]) -> str:
    """Test accuracy at the epoch of best validation accuracy; the chosen mu of a rate is bold, n is in brackets."""
    rates, mus = table_rates(found)
    lines = []
    for h in rates:
        best, cells = chosen(found, mus=mus, h=h), []
        for mu in [0.0, *mus]:
            some = select(found, kind="penalty" if mu else "plain", h=h, mu=mu)
            longest = max(each.cost[-1] for each in select(found, kind="penalty", h=h))
            values = [each.best(longest)[1] for each in some]
            cell = f"{np.mean(values):.3f} ({len(values)})" if values else ""
            cells.append(f"**{cell}**" if mu == best else cell)
        lines.append([f"{h:g}", *cells])
    return markdown(["$h$", *(f"$\\mu$ = {mu:g}" for mu in [0.0, *mus])], lines)


def seeds(found: list[Outcome]) -> str:
    """The boost at the best rate seed by seed, and its mean with each seed left out."""
    ours, plain = pairs(found, best_rate(found))
    new, lines = confirming(found), []
    accuracies, differences = matched(ours, plain), gains(ours, plain)
    both = [each.seed for each in ours if each.seed in {other.seed for other in plain}]
    later = np.array([seed in new for seed in both])
    for k, seed in enumerate(both):
        group = later == later[k]
        others = student(differences[group & (np.arange(len(both)) != k)], least=2)
        without = f"{others.value:.1f} [{others.low:.1f}, {others.high:.1f}]"
        when = "after the rule" if later[k] else "before"
        numbers = [f"{accuracies[k, 1]:.4f}", f"{accuracies[k, 0]:.4f}", f"{differences[k]:.2f}"]
        above = "yes" if differences[k] > PAPER_BOOST else "no"
        lines.append([str(seed), when, *numbers, above, without])
    head = ["seed", "trained", "plain", "penalty", "boost, points", f"above {PAPER_BOOST:g}", "mean without it"]
    return markdown(head, lines)
