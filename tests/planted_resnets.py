"""Histories of ResNets with planted effects."""

import numpy as np

from igr.lab.experiments.resnet import grid as resnet
from igr.lab.store.config import Scale
from igr.lab.store.store import Run

COLUMNS = ("loss", "r_ig", "slope", "param_norm", "train_accuracy", "test_loss", "test_r_ig", "test_slope",
           "test_accuracy")  # fmt: skip
PLAN = resnet.PLANS[Scale.QUICK]
LOW, HIGH = (h for h, _ in PLAN.search)
SMALLEST, LARGEST = (pick(h for h, _ in PLAN.grid) for pick in (min, max))
BEST = PLAN.mus[1]  # the mu planted as the best


def planted(units, effect=1.0, boost=0.1, seed=0, lost=(), unfit=()):
    """Histories as if h drove R_IG down and accuracy up by `effect`, and the penalty at mu = BEST added `boost`.

    Networks of the rates `lost` diverge half-way, those of `unfit` stay below 100 % training accuracy.
    """
    rng, runs = np.random.default_rng(seed), []
    for unit in units:
        (h,), (mu,), shape = unit.learning_rates, unit.rhos or unit.mus, unit.shape
        epoch = (shape.train_images - shape.validation) // shape.batch_size
        step = np.arange(0, shape.steps + 1, epoch)
        full = np.isin(step, [n * epoch for n in shape.schedule.epochs]) | (step == shape.steps)
        rise = 1 - np.exp(-step / shape.steps * 3)
        strength = effect * np.log10(h) + 0.1 * rng.normal()
        gained = boost * np.exp(-(np.log10(mu / BEST) ** 2)) if mu and shape.method == "forward" else 0.0
        accuracy = np.clip((0.6 + 0.05 * strength + gained) * rise + 0.002 * rng.normal(size=len(step)), 0, 1)
        r_ig = 10 ** (-5 - strength - 2 * gained - rise)
        fit = np.minimum(1.0, 0.1 + rise) if h in unfit else np.where(rise > 0.5, 1.0, rise)
        columns = {
            "loss": np.exp(-5 * rise), "r_ig": r_ig, "slope": np.sqrt(1e4 * r_ig), "param_norm": 10 + rise,
            "train_accuracy": np.where(full, fit, np.nan), "test_loss": np.exp(-rise), "test_r_ig": r_ig,
            "test_slope": np.sqrt(1e4 * r_ig), "test_accuracy": accuracy,
        }  # fmt: skip
        columns = {k: v if k.startswith("test_acc") else np.where(full, v, np.nan) for k, v in columns.items()}
        columns["validation_accuracy"] = accuracy + 0.002 * rng.normal(size=len(step))
        best = int(accuracy.argmax())
        gone = h in lost
        if gone:
            for name in columns:
                columns[name][len(step) // 2 :] = np.nan
            best = len(step) // 2 - 1
        tops = {f"best_{k}": np.array([v]) for k, v in {"r_ig": r_ig[best], "test_accuracy": accuracy[best]}.items()}
        tops["best_slope"] = np.sqrt(1e4 * tops["best_r_ig"])
        tops["best_train_accuracy"] = fit[[best]]
        metrics = {f"best_{name}": np.zeros(1) for name in COLUMNS} | tops
        metrics |= {name: values[:, None] for name, values in columns.items()}
        metrics |= {
            "step": step, "full": full, "learning_rate": np.array([h]), "mu": np.array([mu]),
            "seed": np.array(unit.seeds), "num_params": np.int64(10_000), "steps_per_epoch": np.int64(epoch),
            "diverged": np.array([step[len(step) // 2] if gone else -1]), "best_step": step[[best]],
        }  # fmt: skip
        runs.append(Run(unit, metrics, {}))
    return runs


def both(seed=0, **how):
    """The planted runs of the quick scale: the trials, and what follows from them."""
    trials = planted(resnet.trials(Scale.QUICK), seed=seed, **how)
    return trials + planted(resnet.follow_up(Scale.QUICK, None, trials), seed=seed + 1000, **how)


def verdicts(runs):
    return {finding.id: finding for finding in resnet.findings(runs)}
