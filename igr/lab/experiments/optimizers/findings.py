"""What the stored runs say about the half-lag rule."""

import numpy as np

from igr.lab.analysis.findings import Finding, Verdict, judged
from igr.lab.experiments.optimizers.predictions import AdamMap, Batches, MomentumRate, Refusals
from igr.lab.experiments.optimizers.trials import InPractice, OnNetwork, OnPlane
from igr.lab.experiments.optimizers.views import FIELDS, MEMORYLESS, MODIFIED, follows, of_kind, orders, ratios
from igr.lab.store.store import Run, Table

BEYOND = "future work of the paper"
USEFUL = 0.3  # of the distance to the plain flow


def findings(runs: Table) -> list[Finding]:
    """Orders in the plane and on networks, closeness in practice, momentum's rate, Adam's sign, batches, refusals."""
    return [
        *(_order(run) for run in of_kind(runs, OnPlane)),
        *_networks(of_kind(runs, OnNetwork)),
        *(_practice(run) for run in of_kind(runs, InPractice)),
        *_one_norms(of_kind(runs, InPractice)),
        *(_momentum(run) for run in of_kind(runs, MomentumRate)),
        *(each for run in of_kind(runs, AdamMap) for each in _sign(run)),
        *(_batches(run) for run in of_kind(runs, Batches)),
        *(_refusals(run) for run in of_kind(runs, Refusals)),
    ]


def _order(run: Run) -> Finding:
    name, found = run.config.optimizer, orders(run)
    words = ", ".join(f"{field} {order:.2f}" for field, order in zip(FIELDS, found, strict=True) if field != "modified")
    rest = "the half alone suffices: it sees no history" if name in MEMORYLESS else "neither part of the rule suffices"
    return Finding(
        f"{name} follows its modified flow with second order, and {rest}",
        BEYOND,
        "observed order",
        float(found[MODIFIED]),
        len(run.config.steps),
        judged(follows(run)),
        note=words,
        id=f"optimizers.order.{name}",
    )


def _networks(runs: list[Run]) -> list[Finding]:
    found = []
    for activation in dict.fromkeys(run.config.activation for run in runs):
        group = [run for run in runs if run.config.activation == activation]
        missed = [f"{run.config.optimizer} {orders(run)[MODIFIED]:.2f}" for run in group if not follows(run)]
        share = 1 - len(missed) / len(group)
        closer = sum(ratios(run)[-1] < USEFUL for run in group)
        found.append(
            Finding(
                f"Optimizers on a {activation} network follow their modified flow with second order",
                BEYOND,
                "share of optimizers with that order",
                share,
                len(group),
                judged(share == 1) if share in (0, 1) else Verdict.MIXED,
                note=f"for {closer} of {len(group)} the modified flow is closer by 1/{USEFUL:g} or more at the "
                f"smallest step; without the order: {', '.join(missed) or 'none'}",
                id=f"optimizers.network-order.{activation}",
            )
        )
    return found


def _practice(run: Run) -> Finding:
    c, ratio = run.config, ratios(run)
    each = ", ".join(f"{r:.2g} at {h:g}" for h, r in zip(run.metrics["learning_rate"], ratio, strict=True))
    useful = int(np.sum(ratio < USEFUL))
    verdict = judged(useful > 0) if useful in (0, len(ratio)) else Verdict.MIXED
    return Finding(
        f"{c.name} on a {c.activation} network follows its modified flow at learning rates of practice",
        BEYOND,
        "largest distance to the modified over that to the plain flow",
        float(ratio.max()),
        len(ratio),
        verdict,
        note=f"after {c.steps} steps: {each}; correction {float(run.metrics['ratio'].max()):.2g} and remainder "
        f"{float(run.metrics['remainder'].max()):.2g} of u_0 at most",
        id=f"optimizers.practice.{c.name.replace(', ', '-').replace(' ', '-')}.{c.activation}".replace("e-0", "e-"),
    )


def _one_norms(runs: list[Run]) -> list[Finding]:
    """Whether AdamW ends at larger gradients than its plain flow, where its eps is below the gradients."""
    gained = [
        float(row[-1, 0] - row[-1, 1])
        for run in runs
        if run.config.optimizer == "adamw" and run.config.b2 > 0.9 and run.config.eps <= 1e-3
        for row in run.metrics["one_norm"]
    ]
    if not gained:
        return []
    share = float(np.mean(np.array(gained) > 0))
    return [
        Finding(
            "AdamW with b2 > b1 and a small eps arrives at larger gradients than its plain flow, in the one-norm",
            BEYOND,
            "share of networks and learning rates",
            share,
            len(gained),
            Verdict.HOLDS if share > 0.95 else Verdict.MIXED if share > 0.5 else Verdict.FAILS,
            id="optimizers.adamw-one-norm",
        )
    ]


def _momentum(run: Run) -> Finding:
    decays, times = run.metrics["decays"], run.metrics["times"][-1]  # at the smallest rate
    expected = (1 + decays) / (1 - decays)
    each = ", ".join(f"{t:.2f} for b = {b:g}" for b, t in zip(decays, times, strict=True))
    return Finding(
        "At equal effective rate momentum regularizes (1 + b)/(1 - b) times as strongly as gradient descent, on a "
        f"{run.config.activation} network",
        BEYOND,
        "largest relative deviation from that number",
        float(np.max(np.abs(times / expected - 1))),
        len(decays),
        judged(bool(np.all(np.abs(times / expected - 1) < 0.05))),
        note=f"{each}, at the effective rate {run.metrics['rates'][-1]:g}",
        id=f"optimizers.momentum-rate.{run.config.activation}",
    )


def _sign(run: Run) -> list[Finding]:
    rates, signed, gained = (run.metrics[name] for name in ("rates", "signed", "one_norm_gained"))
    b2, b1 = np.meshgrid(rates, rates, indexing="ij")
    differ = b1 != b2
    shares = [
        float(np.mean(np.sign(x[differ]) == np.sign(y[differ]))) for x, y in ((signed, b1 - b2), (gained, b2 - b1))
    ]
    return [
        Finding(
            "Adam's correction acts against a penalty on the one-norm of the gradient where b2 > b1, and as one where "
            "b1 > b2",
            BEYOND,
            "share of decay rates with that sign",
            shares[0],
            int(differ.sum()),
            judged(shares[0] == 1),
            note=f"the correction is at most {np.abs(signed).max():.2g} of the update",
            id="optimizers.adam-sign.correction",
        ),
        Finding(
            "Adam itself arrives at larger gradients than its plain flow where b2 > b1, and at smaller where b1 > b2",
            BEYOND,
            "share of decay rates with that sign",
            shares[1],
            int(differ.sum()),
            judged(shares[1] == 1),
            note=f"the one-norm of the gradient changes by {gained.min():.2g} to {gained.max():.2g} of itself",
            id="optimizers.adam-sign.one-norm",
        ),
    ]


def _batches(run: Run) -> Finding:
    found = orders(run)
    return Finding(
        "Reversed pairs of epochs follow the modified loss with the variance of batch gradients, with second order, on "
        f"a {run.config.activation} network",
        "Smith et al. 2021",
        "observed order",
        float(found[2]),
        len(run.config.pairs),
        judged(bool(abs(found[2] - 2) < 0.25 and found[1] < 1.5)),
        note=f"of the loss {found[0]:.2f}; without the variance {found[1]:.2f}",
        id=f"optimizers.batches.{run.config.activation}",
    )


def _refusals(run: Run) -> Finding:
    refused = [bool(reason) for reason in run.metrics["reasons"]]
    taken = [str(name) for name, reason in zip(run.metrics["names"], run.metrics["reasons"], strict=True) if not reason]
    return Finding(
        "Transformations that do not forget, are not smooth or are cycles of steps are refused",
        BEYOND,
        "share refused",
        float(np.mean(refused)),
        len(refused),
        judged(all(refused)),
        note=f"taken: {', '.join(taken)}" if taken else ", ".join(map(str, run.metrics["names"])),
        id="optimizers.refused",
    )
