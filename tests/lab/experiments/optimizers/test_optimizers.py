"""The experiment of the optimizers: its units, figures and findings at small sizes."""

from dataclasses import replace
from pathlib import Path as File

import jax
import numpy as np
import pytest

from igr.lab.experiments.optimizers.constructors import REFUSED, SMOOTH
from igr.lab.experiments.optimizers.findings import findings
from igr.lab.experiments.optimizers.grid import CAPTIONS, figures, trials
from igr.lab.experiments.optimizers.predictions import AdamMap, MomentumRate, Refusals
from igr.lab.experiments.optimizers.tables import rows, views
from igr.lab.experiments.optimizers.trials import InPractice, OnNetwork, OnPlane, Path
from igr.lab.experiments.optimizers.views import orders, ratios
from igr.lab.runs.local import run_units
from igr.lab.store.config import ConfigError, Scale
from igr.lab.store.store import Store


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("optimizers"))
    units = [
        *trials(Scale.SMOKE),
        OnNetwork("momentum", steps=(16, 32)),
        InPractice("momentum", learning_rates=(1e-3,)),
        MomentumRate(rates=(1e-4,)),
    ]
    store.write_index("optimizers", [unit.config for unit in units], scale="smoke")
    jax.config.update("jax_numpy_dtype_promotion", "standard")  # for all threads: optax promotes its step counts
    try:
        assert not run_units(store, "optimizers", units).failed
    finally:
        jax.config.update("jax_numpy_dtype_promotion", "strict")
    return store.runs("optimizers")[0]


def of(runs, kind, **options):
    """The only run of this kind with these options."""
    (run,) = (
        run
        for run in runs
        if isinstance(run.config, kind) and all(getattr(run.config, name) == x for name, x in options.items())
    )
    return run


def test_every_finding_of_the_smoke_scale_holds(runs):
    found = {each.id: each for each in findings(runs)}
    expected = {"order.momentum", "order.lion", "network-order.tanh", "momentum-rate.tanh", "practice.momentum.tanh"}
    expected |= {"adam-sign.correction", "adam-sign.one-norm"}
    assert set(found) == {f"optimizers.{name}" for name in expected}
    assert {each.id for each in found.values() if each.verdict != "holds"} == {"optimizers.network-order.tanh"}
    assert found["optimizers.network-order.tanh"].note.endswith("without the order: momentum 0.67"), "16 steps are few"


def test_a_network_with_momentum_stays_twenty_times_closer_to_its_modified_flow(runs):
    run = of(runs, InPractice)
    plain, modified, no_half, no_lag = run.metrics["distance"][0, -1]
    assert modified < 0.06 * plain
    assert min(no_half, no_lag) > 1.5 * modified, "neither part of the rule suffices"
    assert plain > 1e-4, "far above the error of the flow's solution"
    assert run.metrics["remainder"] < 1e-10, "momentum is linear in its history"


def test_momentum_is_measured_without_a_formula_and_has_the_predicted_rate(runs):
    run = of(runs, MomentumRate)
    np.testing.assert_allclose(run.metrics["times"], [[3, 9, 19, 39]], rtol=0.02)
    assert run.metrics["cosine"].min() > 0.999


def test_a_wrong_field_would_be_found_out(runs):
    """Findings fail where the columns of the plain and the modified flow, or the two decay rates, are exchanged."""
    plane, practice = of(runs, OnPlane, optimizer="momentum"), of(runs, InPractice)
    rate, adam = of(runs, MomentumRate), of(runs, AdamMap)
    wrong = [
        replace(each, metrics=dict(each.metrics) | {"distance": each.metrics["distance"][..., [1, 0, 2, 3]]})
        for each in (plane, practice)
    ]
    wrong.append(replace(rate, metrics=dict(rate.metrics) | {"times": rate.metrics["times"][:, ::-1]}))
    wrong.append(
        replace(
            adam, metrics=dict(adam.metrics) | {name: adam.metrics[name].T for name in ("signed", "one_norm_gained")}
        )
    )
    assert [each.verdict.value for each in findings(wrong)] == ["fails"] * 5


def test_the_table_has_every_constructor_and_what_is_refused(runs):
    reasons = ["this transformation does not forget: 1 step after"] * (len(REFUSED) - 1) + [""]
    refusals = replace(
        runs[0], config=Refusals(), metrics={"names": np.array(list(REFUSED)), "reasons": np.array(reasons)}
    )
    columns, table = rows([run for run in runs if isinstance(run.config, OnPlane)], [of(runs, OnNetwork)], [refusals])
    assert columns == ["two parameters", "tanh network"]
    assert list(table) == ["momentum", "lion", *REFUSED]
    assert table["lion"][1] == ("", None)
    assert table["adagrad"] == [("refused: does not forget", True)]
    assert table["multisteps"] == [("not refused", False)]
    assert [each.verdict.value for each in findings([refusals])] == ["fails"]


def test_the_flows_of_a_path_begin_at_the_optimizer_and_part_from_it(runs):
    paths = of(runs, Path).metrics["paths"]
    assert np.all(paths[0] == paths[0, 0])
    optimizer, plain, modified = paths[-1]
    assert np.linalg.norm(optimizer - modified) < 0.6 * np.linalg.norm(optimizer - plain)


def test_figures_have_captions(runs):
    made = figures(runs)
    assert set(made) == set(CAPTIONS) - {"optimizers-batches"}


ROOT = File(__file__).parents[4]


@pytest.fixture(scope="module")
def stored():
    found, problems = Store(ROOT / "results").runs("optimizers")
    assert problems == []
    return found


def test_the_repository_has_the_paper_scale_runs_undamaged(stored):
    assert [run.config for run in stored] == trials(Scale.PAPER)
    assert {run.record["precision"] for run in stored} == {"float64"}


def test_the_views_are_what_was_measured(stored):
    made = views(stored)
    adam = of(stored, OnPlane, optimizer="adam")
    assert f"| `adam` | {orders(adam)[0]:.2f} → {orders(adam)[1]:.2f} |" in made["optimizers.orders"]
    assert all(f"| `{name}` | refused: " in made["optimizers.orders"] for name in REFUSED)
    for run in stored:
        if isinstance(run.config, InPractice):
            for h, ratio in zip(run.metrics["learning_rate"], ratios(run), strict=True):
                assert (
                    f"| {run.config.name} | {run.config.activation} | {h:g} | {ratio:.3f} |"
                    in made["optimizers.practice"]
                )
    assert len({line.count("|") for line in made["optimizers.orders"].splitlines()}) == 1


def test_scales_grow_and_have_unique_units():
    smoke, quick, paper = (trials(scale) for scale in (Scale.SMOKE, Scale.QUICK, Scale.PAPER))
    assert len(smoke) < len(quick) < len(paper)
    assert len({unit.config.digest() for unit in paper}) == len(paper)
    assert len(SMOOTH) >= 19
    assert {unit.optimizer for unit in paper if isinstance(unit, OnPlane)} == set(SMOOTH)
    for activation in ("tanh", "gelu", "relu"):
        of_these = {u.optimizer for u in paper if isinstance(u, OnNetwork) and u.activation == activation}
        assert of_these == set(SMOOTH)
    assert np.all(np.diff([len(smoke), len(quick), len(paper)]) > 0)


def test_unknown_optimizers_are_refused():
    with pytest.raises(ConfigError, match="optimizer must be one of sgd"):
        OnPlane("sdg")
    with pytest.raises(ConfigError, match="steps must be two numbers"):
        OnPlane("sgd", steps=(4,))
    with pytest.raises(ConfigError, match="steps must be multiples of 16"):
        OnPlane("sgd", steps=(8, 16))
    with pytest.raises(ConfigError, match="activation must be one of tanh, gelu, relu"):
        OnNetwork("momentum", activation="elu")
    with pytest.raises(ConfigError, match="steps must be a multiple of 25"):
        InPractice("momentum", steps=10)
    with pytest.raises(ConfigError, match="substeps must be at least 1"):
        InPractice("momentum", substeps=0)
