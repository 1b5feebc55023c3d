"""The end points that were computed independently of this code, and what the runs of section 5 show."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from igr.lab.analysis.findings import Verdict
from igr.lab.experiments.two_parameter import grid as two_parameter
from igr.lab.experiments.two_parameter.findings import findings
from igr.lab.experiments.two_parameter.model import (
    CONVERGED,
    DIVERGED,
    TABLE,
    UNFINISHED,
    Descent,
    Flow,
    loss,
    schedule,
    sharpness,
)
from igr.lab.experiments.two_parameter.scans import PenaltyScan, RateScan, crosses
from igr.lab.experiments.two_parameter.views import distances, held_out_error, leaps, norm, path_of, pick, regimes
from igr.lab.runs.unit import Cancelled, Session
from igr.lab.store.config import ConfigError, Scale
from igr.lab.store.files import npz_bytes
from igr.lab.store.store import Run

ONE, TWO = TABLE


@pytest.fixture(scope="module")
def runs():
    trials = two_parameter.trials(Scale.SMOKE)
    return [Run(trial, dict(trial.compute(Session())), {}) for trial in trials]


@pytest.mark.parametrize(
    ("row", "learning_rate", "mu", "end", "steps"),
    [
        (ONE, ONE.small, 0.0, (0.283606, 2.115617), 3_178),
        (ONE, ONE.moderate, 0.0, (0.296518, 2.023490), 130),
        (ONE, ONE.euler, ONE.moderate / 2, (0.292699, 2.049892), 31_774),
        (ONE, ONE.euler, ONE.mu, (0.347218, 1.728025), 16_867),
        (ONE, ONE.large, 0.0, (-2.316604, -0.259000), 6),
        (TWO, TWO.small, 0.0, (3.353335, 0.178927), 1_400_161),
        (TWO, TWO.moderate, 0.0, (3.104427, 0.193273), 32_279),
        (TWO, TWO.euler, TWO.moderate / 2, (3.165925, 0.189519), 3_113_115),
        (TWO, TWO.euler, TWO.mu, (1.710485, 0.350779), 8_114_870),
    ],
)
def test_known_end_points_to_six_digits(runs, row, learning_rate, mu, end, steps):
    run = pick(runs, Descent, start=row.start, learning_rate=learning_rate, mu=mu)
    assert run is not None
    assert run.metrics["outcome"] == CONVERGED
    assert run.metrics["step"][-1] == steps
    np.testing.assert_allclose(run.metrics["params"][-1], end, atol=5.1e-7, rtol=0)
    assert run.metrics["loss"][-1] < 1e-12


def test_euler_and_accurate_solution_of_the_explicit_flow_differ_from_the_second_start(runs):
    euler, accurate = (path_of(runs, TWO, TWO.mu, accurate) for accurate in (False, True))
    assert euler is not None
    assert accurate is not None
    assert norm(euler) == pytest.approx(1.746, abs=5e-4)
    assert norm(accurate) == pytest.approx(1.355, abs=5e-4)
    assert (leaps(euler), leaps(accurate)) == (2, 0)


def test_with_the_squared_norm_the_second_start_diverges(runs):
    twice = pick(runs, Descent, start=TWO.start, mu=2 * TWO.mu)
    assert twice is not None
    assert twice.metrics["outcome"] == DIVERGED
    assert np.all(np.diff(twice.metrics["loss"][:3]) > 0)


@pytest.mark.parametrize(
    ("row", "step", "gradient", "modified"), [(ONE, 130, 0.0964, 0.0271), (TWO, 20, 1.432, 0.318)], ids=["I", "II"]
)
def test_distances_to_both_flows_are_the_known_ones(runs, row, step, gradient, modified):
    found = distances(runs, row, accurate=True)
    assert found is not None
    at = int(np.flatnonzero(found.steps == step)[0])
    assert found.gradient[at] == pytest.approx(gradient, abs=6e-4)
    assert found.modified[at] == pytest.approx(modified, abs=6e-4)


def test_euler_flows_tell_the_same_distances_where_they_are_accurate(runs):
    for row in TABLE:
        accurate, euler = (distances(runs, row, which) for which in (True, False))
        assert accurate is not None
        assert euler is not None
        np.testing.assert_allclose(euler.ratios(), accurate.ratios(), rtol=0.05)


def test_loss_and_its_regularizer_are_the_papers(getkey):
    import igr

    a, b = jax.random.normal(getkey(), (2,))
    x, y = 1.3, 0.7
    direct = (a**2 + b**2) * x**2 * loss((a, b), x, y)
    np.testing.assert_allclose(igr.regularizer(loss)((a, b), x, y), direct, rtol=1e-12)
    mu = 0.3
    np.testing.assert_allclose(
        igr.modified_loss(loss, 2 * mu)((a, b), x, y), loss((a, b), x, y) * (1 + mu * x**2 * (a**2 + b**2)), rtol=1e-12
    )


def test_sharpness_is_the_largest_eigenvalue_of_the_hessian(getkey):
    for _ in range(5):
        params = jax.random.normal(getkey(), (2,)) * 3
        dense = jnp.linalg.eigvalsh(jax.hessian(lambda p: loss((p[0], p[1]), 1.5, -0.4))(params))[-1]
        np.testing.assert_allclose(sharpness((params[0], params[1]), 1.5, -0.4), dense, rtol=1e-10)


def test_crossings_agree_with_walking_along_the_step(getkey):
    points = np.asarray(jax.random.normal(getkey(), (400, 4)))
    s = np.linspace(0, 1, 4001)[:, None]
    walk = (points[:, 0] + s * (points[:, 2] - points[:, 0])) * (points[:, 1] + s * (points[:, 3] - points[:, 1])) - 0.6
    seen = np.any(np.sign(walk[1:]) != np.sign(walk[:-1]), axis=0)
    assert 0.1 < seen.mean() < 0.9
    np.testing.assert_array_equal(crosses(tuple(points[:, :2].T), tuple(points[:, 2:].T)), seen)


def test_kept_steps_of_paths_to_be_compared_have_common_times():
    fine, coarse = schedule(100, 10_000_000), schedule(1, 100_000)
    assert np.all(np.isin(100 * coarse, fine))
    assert np.all(np.diff(fine) > 0)
    assert len(fine) < 1300


def test_descent_that_cannot_end_says_so():
    metrics = Descent(learning_rate=1e-3, max_steps=100).compute(Session())
    assert metrics["outcome"] == UNFINISHED
    assert metrics["step"][-1] == 100
    metrics = Descent(learning_rate=0.3).compute(Session())
    assert metrics["outcome"] == DIVERGED


class Interrupted(Session):
    """Keeps checkpoints in memory and stops at a given report of progress."""

    def __init__(self, after, saved=None):
        super().__init__()
        self.after, self.saved, self.calls = after, saved, 0

    def load(self):
        return self.saved

    def save(self, arrays):
        self.saved = {name: np.asarray(value) for name, value in arrays().items()}
        return True

    def progress(self, fraction, text=""):
        assert 0 <= fraction <= 1
        self.calls += 1
        if self.calls == self.after:
            raise Cancelled


@pytest.mark.parametrize(
    "trial",
    [Descent(learning_rate=1e-5, every=7), RateScan(count=8), PenaltyScan(count=6)],
    ids=lambda trial: type(trial).__name__,
)
def test_resumed_and_uninterrupted_runs_have_the_same_bytes(trial):
    whole, first = Interrupted(after=-1), Interrupted(after=4)
    expected = npz_bytes(trial.compute(whole))
    with pytest.raises(Cancelled):
        trial.compute(first)
    assert first.saved is not None
    second = Interrupted(after=-1, saved=first.saved)
    assert npz_bytes(trial.compute(second)) == expected
    assert second.calls < whole.calls, "the checkpoint was used"


def test_regimes_of_the_learning_rate(runs):
    scan = pick(runs, RateScan)
    assert scan is not None
    sorted_ = regimes(scan)
    order = [name for i, name in enumerate(sorted_.names) if i == 0 or name != sorted_.names[i - 1]]
    assert order == ["lazy", "moderate", "ricochet", "divergent"]
    top = float(sharpness(ONE.start))
    assert sorted_.theory["ricochet"] == pytest.approx(1 / top)
    assert sorted_.theory["divergent"] == pytest.approx(2 / top)
    # Each boundary lies between the two scanned rates around it; these values come from a scan of 960.
    rates = scan.metrics["learning_rate"]
    for name, known in (("moderate", 0.0034), ("ricochet", 0.0756), ("divergent", 0.2117)):
        index = int(np.flatnonzero(rates == sorted_.observed[name])[0])
        assert rates[index - 1] <= known <= rates[index] * 1.02
    # At the smallest rate the end is that of the flow, and the modified flow says by how much it differs.
    drop, said = (1 - ratio[0] / sorted_.flow_ratio for ratio in (sorted_.ratio, sorted_.predicted))
    assert drop == pytest.approx(said, rel=0.02)


def test_at_a_minimum_the_held_out_error_does_not_see_which_one():
    minima = np.array([(a, 0.6 / a) for a in (0.1, 0.5, 2.0, -3.0)])
    np.testing.assert_allclose(held_out_error(minima), 0.045, rtol=1e-12)


def test_findings_at_smoke_scale(runs):
    found = findings(runs)
    by_verdict = {}
    for each in found:
        by_verdict.setdefault(each.verdict, []).append(each.id)
        assert each.n > 0
        assert each.value is not None
        assert np.isfinite(each.value)
    assert sum("closer-to-modified-flow" in id for id in by_verdict[Verdict.HOLDS]) == 4
    assert "two-parameter.test-error-falls-with-mu.end" in by_verdict[Verdict.FAILS]
    assert "two-parameter.euler-step-small-enough.explicit-start-ii" in by_verdict[Verdict.FAILS]
    assert "two-parameter.norm-falls-with-h.no-crossing" in by_verdict[Verdict.HOLDS]
    assert "two-parameter.norm-falls-with-h.converged" in by_verdict[Verdict.MIXED]


def altered(runs, kind, change, **fields):
    """The runs with the measurements of one of them changed."""
    target = pick(runs, kind, **fields)
    return [dataclasses.replace(run, metrics=change(run.metrics)) if run is target else run for run in runs]


def test_verdicts_follow_the_numbers(runs):
    """The same code on doctored runs says the opposite: no verdict is written down beforehand."""
    modified, gradient = (
        pick(runs, Flow, start=ONE.start, mu=ONE.moderate / 2),
        pick(runs, Flow, start=ONE.start, mu=0.0),
    )
    assert modified is not None
    assert gradient is not None
    swapped = [
        dataclasses.replace(run, metrics=gradient.metrics)
        if run is modified
        else dataclasses.replace(run, metrics=modified.metrics)
        if run is gradient
        else run
        for run in runs
    ]
    closer = [each for each in findings(swapped) if each.is_part_of("two-parameter.closer-to-modified-flow.start-i")]
    assert [each.verdict for each in closer] == [Verdict.FAILS, Verdict.FAILS]

    rising = altered(runs, RateScan, lambda m: {**m, "params": np.sort(np.abs(m["params"]), axis=0)})
    falls = [each for each in findings(rising) if each.is_part_of("two-parameter.norm-falls-with-h")]
    assert {each.verdict for each in falls} == {Verdict.FAILS}

    better = altered(
        runs, PenaltyScan, lambda m: {**m, "params": m["params"] * (1 + 0.01 * np.arange(len(m["mu"])))[:, None]}
    )
    ends = [each for each in findings(better) if each.id == "two-parameter.test-error-falls-with-mu.end"]
    assert ends[0].verdict == Verdict.HOLDS


def test_missing_runs_are_not_testable_and_not_an_error():
    found = findings([])
    assert found
    assert {each.verdict for each in found} == {Verdict.UNTESTABLE}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Descent(learning_rate=0.0),
        lambda: Descent(mu=-1.0),
        lambda: Descent(x=0.0),
        lambda: Descent(stop_loss=0.0),
        lambda: Flow(rtol=0.0),
        lambda: RateScan(lowest=0.5),
        lambda: PenaltyScan(times=(0.2, 0.1)),
        lambda: two_parameter.Options(rates=2),
    ],
)
def test_configurations_that_cannot_be_meant(make):
    with pytest.raises(ConfigError, match=r"\.$"):
        make()


def test_options_reach_the_trials():
    scans = [t for t in two_parameter.trials(Scale.SMOKE, two_parameter.Options(1e-8, 33)) if isinstance(t, RateScan)]
    assert (scans[0].count, scans[0].stop_loss) == (33, 1e-8)
    sizes = [next(t.count for t in two_parameter.trials(scale) if isinstance(t, RateScan)) for scale in Scale]
    assert sizes == sorted(set(sizes))
