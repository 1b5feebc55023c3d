"""Tables of the MLPs for pages: accuracies by learning rate, the stopping rules, and the strata of the controls."""

import numpy as np

from igr.lab.analysis.cohort import Cohort, cohort
from igr.lab.analysis.correlation import models
from igr.lab.analysis.markdown import markdown
from igr.lab.analysis.strata import stratified
from igr.lab.experiments.mlp.controls import FIXED, SLOPE, slopes_by_width
from igr.lab.experiments.mlp.controls_figure import TIMES
from igr.lab.experiments.mlp.runs import fitted_cohort, focus_width, of, rule_settings
from igr.lab.store.store import Table


def views(runs: Table) -> dict[str, str]:
    """The tables by name, where their runs are stored."""
    grid, focus = of(runs), focus_width(runs)
    if not grid:
        return {}
    return {"mlp.by-rate": by_rate(grid, focus), "mlp.by-time": by_time(grid), "mlp.rules": rules(grid)}


def by_rate(grid: Table, focus: int) -> str:
    """How many networks fit and diverge at each learning rate, and the accuracy of those at one width that fit."""
    table, lines = cohort(grid), []
    for h in np.unique(table["learning_rate"])[::-1]:
        mine = table["learning_rate"] == h
        good = mine & table["fitted"] & (table["width"] == focus)
        accuracy = f"{table['test_accuracy'][good].mean():.4f}" if good.any() else ""
        counts = [f"{int((mine & table['fitted']).sum())} of {int(mine.sum())}"]
        lines.append([f"{h:g}", *counts, str(int((mine & (table["diverged"] >= 0)).sum())), accuracy])
    return markdown(["$h$", "fit exactly", "diverged", f"mean maximum of test accuracy, $n_l$ = {focus}"], lines)


def _strata(table: Cohort, y: str) -> tuple[int, list[str], dict[float, float]]:
    found = stratified(table["learning_rate"], table[y], table["width"], models(table))
    if not found.strata:
        return 0, ["", "", ""], {}
    e = found.estimate
    interval = f"[{e.low:.2f}, {e.high:.2f}]" if e.interval else ""
    return e.n, [f"{e.value:.2f}", interval, f"{found.p:.2g}"], found.strata


def by_time(grid: Table) -> str:
    """The correlation of R_IG/E with h within each width, at physical times."""
    time = next(at for rule, at, *_ in rule_settings(grid) if rule == "time" and at is not None)
    lines, widths = [], sorted({run.config.shape.width for run in grid})
    for at in (share * time for share in TIMES):
        n, cells, strata = _strata(fitted_cohort(grid, "time", at), "r_ig / loss")
        if n:
            lines.append([f"{at:,.0f}", str(n), *cells, *(f"{strata[w]:.2f}" if w in strata else "" for w in widths)])
    return markdown(["$T$", "n", "mean over widths", "95 %", "p", *(f"$n_l$ = {w}" for w in widths)], lines)


def rules(grid: Table) -> str:
    """Slopes at equal training loss by the rule that says which slope counts, within each width."""
    lines, widths = [], sorted({run.config.shape.width for run in grid})
    for rule, words in (
        ("first", "first passage, interpolated"),
        ("measured", "first measurement below"),
        ("last", "last passage, interpolated"),
    ):
        for levels, where in ((None, "common range of a width"), (FIXED, f"{len(FIXED)} losses from 1 to 0.01")):
            n, cells, strata = _strata(slopes_by_width(grid, levels, rule), SLOPE)
            lines.append([words, where, str(n), *cells, *(f"{strata[w]:.2f}" if w in strata else "" for w in widths)])
    head = ["rule", "losses", "n", "mean over widths", "95 %", "p", *(f"$n_l$ = {w}" for w in widths)]
    return markdown(head, lines)
