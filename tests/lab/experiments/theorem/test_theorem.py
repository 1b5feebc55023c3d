"""The theorem on networks: measured on a small one, and judged on planted distances whose orders are known."""

import dataclasses

import numpy as np
import pytest

from igr.lab.analysis.findings import Verdict
from igr.lab.experiments.theorem import grid as theorem
from igr.lab.experiments.theorem.paths import Paths
from igr.lab.experiments.theorem.views import lost_at, order, step_order, trusted
from igr.lab.plots import style as drawing
from igr.lab.runs.unit import Session
from igr.lab.store.config import ConfigError, Scale
from igr.lab.store.store import Run

RATES = (0.5, 0.25, 0.125, 0.0625)


def planted(orders=(1.0, 2.0, 3.0), activation="tanh", noise=0.02, seeds=3, **changes):
    """Runs whose distances are h^order t, with a deviation that is the seed's at each rate."""
    runs = []
    for seed in range(seeds):
        rng, h, t = np.random.default_rng(seed), np.array(RATES), np.linspace(0, 8, 17)
        wiggle = np.exp(noise * rng.normal(size=(len(h), 3)))
        far = np.stack([0.1 * h**p for p in orders], axis=1) * wiggle
        distance = far[:, :, None] * t
        step = np.stack([0.1 * h ** (p + 1) for p in orders], axis=1) * wiggle
        metrics = {
            "learning_rate": h, "time": t, "distance": distance, "solver_error": 1e-9 * distance, "step_error": step,
            "travelled": np.tile(t, (len(h), 1)), "crossings": np.tile(np.arange(17), (len(h), 1)),
            "loss": np.ones((len(h), 17)), "h_lambda": np.tile(h[:, None], (1, 17)),
        }  # fmt: skip
        config = Paths(activation=activation, seed=seed, rates=RATES, time=8.0, samples=16)
        runs.append(Run(config, metrics | changes, {}))
    return runs


def verdicts(runs):
    return {each.id: each for each in theorem.findings(runs)}


def test_planted_orders_are_found_and_wrong_ones_fail():
    right = verdicts(planted())
    wrong = verdicts(planted(orders=(1.0, 1.0, 1.0)))
    unclear = verdicts(planted(noise=0.5))
    id = "theorem.order.modified-flow.smooth"
    assert (right[id].verdict, right[id].n) == (Verdict.HOLDS, 3)
    assert right[id].value == pytest.approx(2, abs=0.1)
    assert wrong[id].verdict == Verdict.FAILS
    assert unclear[id].verdict == Verdict.MIXED, "the interval is wider than the tolerance"
    assert right["theorem.order.gradient-flow.smooth"].verdict == Verdict.HOLDS
    assert right["theorem.one-step-order.modified-flow.tanh-mlp-digits"].value == pytest.approx(3, abs=0.1)
    assert verdicts(planted(seeds=1))[id].verdict == Verdict.UNTESTABLE


def test_the_lead_is_lost_where_the_modified_flow_is_farther():
    runs = planted(noise=0.0)
    for run in runs:
        run.metrics["distance"][0, 1, 9:] = 10.0  # at the largest rate, from the ninth time on
        run.metrics["h_lambda"][0, 9:] = 3.0
    assert lost_at(runs[0])[0] == runs[0].metrics["time"][9]
    assert np.isnan(lost_at(runs[0])[1:]).all()
    found = verdicts(runs)
    assert found["theorem.lead.tanh-mlp-digits"].verdict == Verdict.MIXED
    assert found["theorem.lead.tanh-mlp-digits"].value == 0.25
    assert found["theorem.lead-ends-at-edge.smooth"].verdict == Verdict.HOLDS
    for run in runs:
        run.metrics["h_lambda"][:] = 0.1  # now the lead is lost far below the edge
    assert verdicts(runs)["theorem.lead-ends-at-edge.smooth"].verdict != Verdict.HOLDS


def test_networks_with_kinks_are_no_part_of_the_headline():
    both = planted() + planted(orders=(1.0, 1.0, 1.0), activation="relu")
    found = verdicts(both)
    assert found["theorem.order.modified-flow.smooth"].n == 3
    assert found["theorem.order.modified-flow.relu-mlp-digits"].verdict == Verdict.FAILS
    assert found["theorem.kinks.lead-grows"].verdict == Verdict.FAILS
    with drawing.style():
        figures = theorem.figures(both)
        card = theorem.cards(both)["theorem"]
    assert len(card.axes[0].get_lines()) == 6, "two flows of three seeds with tanh"
    assert theorem.cards(planted(activation="relu")) == {}
    assert set(figures) == {"theorem-orders", "theorem-paths"} <= set(theorem.CAPTIONS)
    tables = theorem.views(both)
    assert tables["theorem.orders"].count("\n") == 3
    assert "relu MLP" in tables["theorem.lead-by-rate"]


def test_distances_within_the_solvers_error_are_not_trusted():
    runs = planted(noise=0.0)
    runs[0].metrics["solver_error"] = runs[0].metrics["distance"] * np.array([1e-9, 0.2, 1e-9])[None, :, None]
    assert np.isnan(trusted(runs[0])[:, 1]).all()
    assert np.isfinite(trusted(runs[0])[:, 0, 1:]).all()
    assert np.isnan(order(runs[0], 1))


def test_a_small_network_has_the_orders_of_the_theorem():
    """The unit itself, in float64: a step of descent and a path beside three flows."""
    unit = dataclasses.replace(theorem.trials(Scale.SMOKE)[0], rates=(0.0625, 0.03125), time=0.5, samples=2)
    metrics = unit.compute(Session())
    run = Run(unit, metrics, {})
    assert [step_order(run, flow) for flow in range(2)] == pytest.approx([2, 3], abs=0.1)
    assert [order(run, flow) for flow in range(3)] == pytest.approx([1, 2, 3], abs=0.15)
    assert np.all(metrics["distance"][:, :, 0] == 0)
    assert np.all(metrics["crossings"] == 0)


def test_what_cannot_be_compared_is_one_sentence():
    with pytest.raises(ConfigError, match="multiple of every learning rate"):
        Paths(rates=(0.5, 0.3), time=8.0, samples=16)
    with pytest.raises(ConfigError, match="at least two positive rates"):
        Paths(rates=(0.5,))
    assert len(theorem.trials(Scale.PAPER)) == 24
    assert {unit.seed for unit in theorem.trials(Scale.PAPER, theorem.Options(seeds=2))} == {0, 1}
