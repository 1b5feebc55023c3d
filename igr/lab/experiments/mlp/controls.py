"""Controls for the predictions: within one width, within one learning rate, at equal physical time, at equal loss.

A correlation over the whole grid mixes the effects of width, learning rate and time. Here networks are compared within
strata that agree in one of these (`igr.lab.analysis.strata`), or where their training loss is the same
(`igr.lab.analysis.levels`).
"""

import numpy as np

from igr.lab.analysis.cohort import Cohort, cohort, pick
from igr.lab.analysis.correlation import correlation
from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.analysis.levels import slopes_at_equal_loss
from igr.lab.analysis.strata import within
from igr.lab.experiments.mlp.runs import fitted_cohort, rule_settings
from igr.lab.store.store import Table

BEYOND, SLOPE = "not in the paper", "slope at equal loss"
FIXED = np.geomspace(1, 0.01, 8)  # losses at which slopes are compared, beside those that the networks determine
TIMES = (0.1, 0.2, 0.5, 2.0)  # of the physical time at which networks are compared: other times
AT = (1.0, 0.1, 0.01)  # losses at which the slopes are compared one by one


def controls(grid: Table) -> list[Finding]:
    """The findings on the networks of `grid`, of several widths and learning rates."""
    settings = {part: (rule, at, words) for rule, at, part, words in rule_settings(grid)}
    tables = {part: fitted_cohort(grid, rule, at) for part, (rule, at, _) in settings.items()}
    best = tables["max-test"]
    found = [_width("r-ig-falls", "R_IG falls", "prediction 1, figure A.6", best, "r_ig", -1, "max-test", settings)]
    for part in ("max-test", "equal-time"):
        place = "prediction 3, figure A.6" if part == "max-test" else "figure A.5"
        words = "Test accuracy grows"
        found.append(_width("accuracy-grows", words, place, tables[part], "test_accuracy", +1, part, settings))
    for part, place in (("max-test", "figure A.4"), ("equal-steps", "figure A.3"), ("equal-time", "figure A.5")):
        found.append(_width("ratio-falls", "R_IG/E falls", place, tables[part], "r_ig / loss", -1, part, settings))
    time = settings["equal-time"][1]
    assert time is not None
    found += _by_time(grid, time)
    for y, words in (("r_ig", "R_IG falls"), ("loss", "E falls")):
        name, place = words.lower().replace("_", "-").replace(" ", "-"), "figure A.5, appendix A.5"
        found.append(_width(name, words, place, tables["equal-time"], y, -1, "equal-time", settings))
    for name, y in (("r-ig", "r_ig"), ("slope", "slope")):
        claim = f"{'R_IG' if y == 'r_ig' else 'The slope'} falls as the width grows, at each learning rate"
        place, id = "prediction 1, figure A.6" if y == "r_ig" else BEYOND, f"mlp.within-rate.{name}-falls-with-width"
        found.append(within(id, claim, place, best, "width", y, "learning_rate", -1))
    return [*found, _lambda_alone(best), *_equal_loss(grid)]


def _width(
    name: str, words: str, paper: str, table: Cohort, y: str, sign: int, part: str, settings: dict, note: str = ""
) -> Finding:
    claim = f"{words} as h grows, at each width, {settings[part][2]}"
    return within(
        f"mlp.within-width.{name}-with-h.{part}", claim, paper, table, "learning_rate", y, "width", sign, note
    )


def _by_time(grid: Table, time: float) -> list[Finding]:
    """The same coefficient at other times: its sign depends on the time."""
    found = []
    for share in TIMES:
        table, at = fitted_cohort(grid, "time", share * time), share * time
        claim = f"R_IG/E falls as h grows, at each width, at physical time {at:,.4g}"
        id = f"mlp.within-width.ratio-falls-with-h.time-{share:g}"
        x, y = "learning_rate", "r_ig / loss"
        found.append(within(id, claim, "figure A.5", table, x, y, "width", -1, f"{share:g} of the time of A.5"))
    return found


def _lambda_alone(best: Cohort) -> Finding:
    """A claim of no effect: an interval can refute it, and cannot confirm it."""
    claim = "Test accuracy depends on lambda alone: it does not change with h at equal lambda"
    id, rate = "mlp.accuracy-depends-on-lambda-alone", "learning_rate"
    found = correlation(id, claim, "figure 2b", best, rate, "test_accuracy", +1, "implicit_rate")
    excluded = found.interval is not None and found.interval[0] * found.interval[1] > 0
    verdict = Verdict.UNTESTABLE if found.interval is None else Verdict.FAILS if excluded else Verdict.MIXED
    return Finding(claim, found.paper, found.quantity, found.value, found.n, verdict, found.interval, found.note, id=id)


def slopes_by_width(grid: Table, levels: np.ndarray | None = None, rule: str = "first") -> Cohort:
    """The networks of `grid` that fit, with their slope at `levels` or at losses that all networks of a width reach."""
    tables = []
    for width in sorted({run.config.shape.width for run in grid}):
        mine = [run for run in grid if run.config.shape.width == width]
        table = cohort(mine)
        slopes = slopes_at_equal_loss(mine, keep=table["fitted"], levels=levels, rule=rule)
        tables.append(pick(table | {SLOPE: slopes}, table["fitted"]))
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _equal_loss(grid: Table) -> list[Finding]:
    """Slopes at equal training loss at each width, by the rule and by others, to see how much depends on the rule."""
    fixed, linear = f"{len(FIXED)} losses from {FIXED[0]:g} to {FIXED[-1]:g}", "interpolated between measurements"
    common, found = "losses that all networks of a width reach", []
    for part, levels, rule, words in (
        ("common-range", None, "first", f"the first passage of {common}, {linear}"),
        ("fixed-levels", FIXED, "first", f"the first passage of {fixed}, {linear}"),
        ("common-range-measured", None, "measured", f"the first measurement below {common}"),
        ("fixed-levels-measured", FIXED, "measured", f"the first measurement below {fixed}"),
        ("common-range-last", None, "last", f"the last passage of {common}, {linear}"),
        ("fixed-levels-last", FIXED, "last", f"the last passage of {fixed}, {linear}"),
    ):
        claim, paper = "Slopes fall as h grows at equal training loss, at each width", "prediction 1, prediction 2"
        id = f"mlp.equal-loss.slope-falls-with-h.{part}"
        table, x = slopes_by_width(grid, levels, rule), "learning_rate"
        found.append(within(id, f"{claim} ({words})", paper, table, x, SLOPE, "width", -1, "geometric mean"))
    return found + [_at_loss(grid, level) for level in AT]


def slopes_at(grid: Table, level: float) -> Cohort:
    """The networks of `grid` that fit, with their slope where their loss first passes `level`."""
    table = cohort(grid)
    slopes = slopes_at_equal_loss(grid, keep=table["fitted"], levels=np.array([level]))
    return pick(table | {SLOPE: slopes}, table["fitted"])


def _at_loss(grid: Table, level: float) -> Finding:
    """The sign depends on the loss: the fall of the slope with h comes late in training."""
    claim = f"Slopes fall as h grows where the training loss first passes {level:g}, at each width"
    id, x = f"mlp.equal-loss.slope-falls-with-h.at-{level:g}", "learning_rate"
    return within(id, claim, "prediction 1, prediction 2", slopes_at(grid, level), x, SLOPE, "width", -1)
