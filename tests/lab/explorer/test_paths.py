"""The paths of the explorer, computed by a real browser, beside the library's: every loss and every optimizer."""

import functools

import browser as browsing
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import solve_ivp

import igr
from igr.lab.experiments.two_parameter.model import advance, flow_path
from igr.lab.experiments.two_parameter.scans import HORIZON, RateScan
from igr.lab.experiments.two_parameter.views import regimes
from igr.lab.explorer import losses
from igr.lab.explorer import page as explorer
from igr.lab.runs.unit import Session
from igr.lab.store.store import Run

LOSSES = {
    "valleys": losses.two_valleys,
    "product": losses.product,
    "rosenbrock": losses.curved_valley,
    "network": losses.network,
}
STARTS = {"valleys": (-0.375, 1.5), "product": (2.8, 3.5), "rosenbrock": (-1.2, 0.2), "network": (-0.6, 0.3)}
RHO, MU, BETA = 0.03, 0.02, 0.6
RATES = {"gd": 0.02, "momentum": 0.004, "nesterov": 0.005, "adam": 0.01, "sam": 0.02, "penalty": 0.02}
TIMES = (1, 7, 40, 120, 700)  # steps


def loss(p, which):
    """All losses in one function, so that an optimizer is compiled once."""
    return jax.lax.switch(which, list(LOSSES.values()), p)


def sam_field(p, which):
    g = jax.grad(loss)(p, which)
    return -jax.grad(loss)(p + RHO * g / jnp.linalg.norm(g), which)


def penalty_field(p, which):
    return -igr.value_and_grad(loss, mu=MU)(p, which)[1]


@functools.cache
def library(name):
    """The step of an optimizer, (params, state, which) -> (params, state), its plain and its modified field."""
    h = RATES[name]
    if name in ("sam", "penalty"):
        field = {"sam": sam_field, "penalty": penalty_field}[name]
        modified = igr.modified_field(field, h, order=1)
        return (
            jax.jit(lambda p, state, which: (p + h * field(p, which), state)),
            jax.jit(lambda p, which: h * field(p, which)),
            jax.jit(lambda p, which: h * modified(p, which)),
            None,
        )
    tx = {
        "gd": lambda: optax.sgd(h),
        "momentum": lambda: optax.sgd(h, momentum=BETA),
        "nesterov": lambda: optax.sgd(h, momentum=BETA, nesterov=True),
        "adam": lambda: optax.adam(h, b1=BETA, b2=0.9, eps=0.3),
    }[name]()

    def step(p, state, which):
        update, state = tx.update(jax.grad(loss)(p, which), state, p)
        return optax.apply_updates(p, update), state

    plain, modified = (jax.jit(igr.optimizers.modified_field(tx, loss, order=order)) for order in (0, 1))
    return jax.jit(step), plain, modified, tx


def expected(name, which, times):
    """The three paths as the library has them, each at its own times."""
    step, plain, modified, tx = library(name)
    start = jnp.array(STARTS[list(LOSSES)[which]])
    p, state, steps = start, tx.init(start) if tx else None, {}
    for n in range(1, max(times["descent"]) + 1):
        p, state = step(p, state, which)
        steps[n] = np.asarray(p)
    paths = {"descent": np.array([steps[n] for n in times["descent"]])}
    for path, field in (("plain", plain), ("modified", modified)):
        paths[path] = solve_ivp(
            lambda t, p, field=field: np.asarray(field(jnp.asarray(p), which)),
            (0, max(times[path])), start, "DOP853", times[path], rtol=1e-8, atol=1e-10,
        ).y.T  # fmt: skip
    return paths


@pytest.fixture(scope="module")
def chromium():
    with browsing.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(chromium):
    with browsing.opened(chromium, explorer()) as page:
        yield page


def state_of(name, loss, **more):
    a, b = STARTS[loss]
    knobs = {"beta": BETA, "rho": RHO, "mu": MU, "empty": 1}
    return {"loss": loss, "opt": name, "a": a, "b": b, "h": RATES[name], **knobs, **more}


PATHS = """([state, times]) => {
    const result = Dynamics.run(state), found = {};
    for (const name of ["descent", "plain", "modified"]) {
        const known = times.filter((t) => t <= result[name].time);  // a path ends where it comes to rest
        found[name] = [known, known.map((t) => Dynamics.at(result[name], t))];
    }
    return found;
}"""


@pytest.mark.parametrize("name", RATES)
def test_paths_are_the_librarys_to_four_digits_for_every_loss(page, name):
    for which, id in enumerate(LOSSES):
        shown = page.evaluate(PATHS, [state_of(name, id), list(TIMES)])
        times = {path: known for path, (known, _) in shown.items()}
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam takes powers of an integer
            paths = expected(name, which, times)
        for path, points in paths.items():
            assert len(points) >= 2, (id, path)
            np.testing.assert_allclose(shown[path][1], points, rtol=1e-4, atol=2e-5, err_msg=f"{id}, {path}")
        apart = np.linalg.norm(np.subtract(shown["plain"][1][:2], shown["modified"][1][:2]), axis=1)
        assert apart.max() > 1e-3, f"{id}: the correction is so small that this would pass without it"


def test_every_choice_of_the_page_is_compared(page):
    assert page.evaluate("[Object.keys(Losses), Object.keys(Optimizers.table)]") == [list(LOSSES), list(RATES)]
    starts = page.evaluate("Object.fromEntries(Object.entries(Losses).map(([id, loss]) => [id, loss.start]))")
    assert starts == {id: list(start) for id, start in STARTS.items()}
    assert page.evaluate("Losses.network.points") == [list(each) for each in losses.POINTS]


@functools.partial(jax.jit)
def all_derivatives(p, which):
    """In the page's order: E, its gradient, and the second and third derivatives without repetitions."""
    first, second = jax.grad(loss), jax.hessian(loss)
    third = jax.jacfwd(second)(p, which)
    (aa, ab), (_, bb) = second(p, which)
    triples = third[0, 0, 0], third[0, 0, 1], third[0, 1, 1], third[1, 1, 1]
    return jnp.array([loss(p, which), *first(p, which), aa, ab, bb, *triples])


def test_losses_and_their_derivatives_are_the_librarys(page):
    points = np.random.default_rng(0).uniform(-1.5, 1.5, (6, 2))
    for which, id in enumerate(LOSSES):
        shown = page.evaluate(f"(points) => points.map((p) => Losses.{id}.derivatives(...p))", points.tolist())
        wanted = [all_derivatives(jnp.array(p), which) for p in points]
        np.testing.assert_allclose(shown, wanted, rtol=1e-9, atol=1e-11, err_msg=id)
        values = page.evaluate(f"(points) => points.map((p) => Losses.{id}.value(...p))", points.tolist())
        np.testing.assert_allclose(values, np.array(wanted)[:, 0], rtol=1e-12, err_msg=id)


def test_ends_on_the_papers_model_are_those_of_its_experiment(page):
    """By other code: `advance` and `flow_path` are those of the stored runs."""
    start, h = (2.8, 3.5), 0.025
    result = page.evaluate("(state) => Dynamics.run(state)", state_of("gd", "product", h=h))
    (a, b), _ = advance(tuple(map(jnp.asarray, start)), jnp.zeros((), int), 1_000_000, h, 0.0, 1.0, 0.6, 1e-12)
    assert result["descent"]["end"] == pytest.approx([float(a), float(b)], rel=1e-6)
    for name, mu in (("plain", 0.0), ("modified", h / 2)):  # `mu` of the two-parameter model multiplies R_IG
        end = [float(each[-1]) for each in flow_path(start, np.array([0.0, HORIZON]), mu, 1.0, 0.6, 1e-11, 1e-13)]
        assert result[name]["end"] == pytest.approx(end, rel=1e-4)
    assert result["gaps"]["modified"][-1] < 0.3 * result["gaps"]["plain"][-1]


def test_regimes_are_the_librarys_at_every_rate(page):
    """The same scan as the phases' figure, coarser; each of the four words occurs."""
    scan = RateScan(lowest=1e-3, highest=0.3, count=60)
    wanted = regimes(Run(scan, dict(scan.compute(Session())), {})).names.tolist()
    seen = page.evaluate(
        "([state, rates]) => rates.map((h) => Dynamics.run({ ...state, h }).regime)",
        [state_of("gd", "product"), scan.rates().tolist()],
    )
    assert seen == wanted
    assert set(seen) == {"lazy", "moderate", "ricochet", "divergent"}


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam"])
def test_the_distance_to_the_modified_flow_is_of_second_order_if_the_memory_is_filled(page, name):
    """With an empty memory the first steps are shorter, which costs an order; Adam corrects for it."""
    largest = "([state, hs]) => hs.map((h) => Dynamics.largest(Dynamics.run({ ...state, h }).gaps.modified))"
    for loss in ("product", "network"):
        for empty in (0, 1):
            hs = [RATES[name] / 4, RATES[name] / 8]
            coarse, fine = page.evaluate(largest, [state_of(name, loss, empty=empty), hs])
            wanted = 2 if empty and name != "adam" else 4
            assert coarse / fine == pytest.approx(wanted, rel=0.1), (loss, empty)
