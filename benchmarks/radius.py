"""How good the default radius of the differences is: networks, precisions and times in training.

    python benchmarks/radius.py --json FILE          small networks on this machine, about half an hour on one core
    python benchmarks/radius.py --full --json FILE   larger ones (one GPU)
    python benchmarks/radius.py --hold --json FILE   differences that hold the kinks, on the networks that have some

For each network, precision and time: the default of the forward difference, its error against the exact Hg of the same
program, the best radius of a grid and the error there. "Shortened" is a candidate that was not taken (docs/log.md):
with kinks the default times 2E/|g|, between 0.1 and 1. Errors are medians over three batches; where kinks are crossed
they are root mean squares over eight, because few batches meet a kink over a short way and those decide. The exact Hg
does not see kinks, and with --hold neither do the differences. TF32 is emulated (`tf32.py`) unless this is a GPU, whose
float32 products it is by default.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from networks import loss_of, panel
from tf32 import with_tf32
from timing import hardware, markdown

import igr
from igr._jax import jaxpr_as_fun
from igr.calculus import squared_norm
from igr.penalty.error import errors_of, exact_of
from igr.penalty.parts import Devices
from igr.penalty.program import of_loss
from igr.penalty.radius import radius_of

RADII = tuple(float(r) for r in 10.0 ** np.arange(-4.5, 0.01, 0.25))
METHODS = ("forward", "central")
LENGTHS = [(name, method) for name in ("shortened", "default") for method in METHODS]
PRECISIONS = {"float32": jnp.float32, "TF32": jnp.float32, "bfloat16": jnp.bfloat16}


def traced(loss, precision, params, *batch):
    """(the program of the gradient in a precision, the leaves of the parameters)."""
    with jax.default_matmul_precision("highest" if precision == "float32" else None):
        program, leaves = of_loss(loss, params, batch, {}, False)
    if precision == "TF32" and jax.default_backend() == "cpu":
        program.closed = jax.make_jaxpr(with_tf32(jaxpr_as_fun(program.closed)))(*leaves)
        program.consts = list(program.closed.consts)
    return program, leaves


def rows_of(name, params, apply, batch, precision, times, batches, hold=False):
    loss = loss_of(apply, PRECISIONS[precision])
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)
    trace = partial(traced, loss, precision)
    kinks = igr.has_kinks(lambda p: loss(p, *batch(0)), params) and not hold

    def over(errors):  # of several batches
        return np.sqrt(np.mean(np.square(errors), axis=0)) if kinks else np.median(errors, axis=0)

    @jax.jit
    def step(params, state, x, y):
        program, leaves = trace(params, x, y)
        _, grads = program.run(program.consts, leaves)
        updates, state = optimizer.update(jax.tree.structure(params).unflatten(grads), state, params)
        return optax.apply_updates(params, updates), state, loss(params, x, y)

    @jax.jit
    def exact(params, x, y):
        program, leaves = trace(params, x, y)
        g, hg = exact_of(program, leaves)
        energy = program.rest(program.run(program.consts, leaves)[0])[0]
        near = 2 * energy / jnp.sqrt(squared_norm(g))
        part = jnp.clip(near, 0.1, 1) if kinks else 1.0  # of a length of parameters of 1, as all of these have
        default = {m: radius_of(program, leaves, m, Devices((), leaves), hold) for m in METHODS}
        lengths = {("shortened", m): part * r for m, r in default.items()}
        lengths |= {("default", m): r for m, r in default.items()}
        return g, hg, [lengths[k] for k in LENGTHS], (jnp.sqrt(squared_norm(hg) / squared_norm(g)), near)

    @jax.jit
    def errors(params, x, y, g, hg, radius):
        program, leaves = trace(params, x, y)
        return errors_of(program, leaves, g, hg, radius, hold=hold)

    done, value = 0, None
    for time in times:
        for i in range(done, time):
            params, state, value = step(params, state, *batch(i))
        done, found = time, []
        for i in range(3 * batches - 1 if kinks else batches):
            here = (params, *batch(1000 + i))
            g, hg, own, numbers = exact(*here)
            own = [float(r) for r in own]
            table = np.array([[float(e) for e in errors(*here, g, hg, jnp.float32(r))] for r in [*RADII, *own]])
            found.append((own, [float(x) for x in numbers], table))
        for place, method in enumerate(METHODS):
            table = np.array([t[:, place] for _, _, t in found])
            middle = over(table)
            best = int(np.nanargmin(middle[: len(RADII)]))
            at = {name: LENGTHS.index((name, method)) for name in ("default", "shortened")}
            error, shortened = (float(middle[len(RADII) + i]) for i in at.values())
            row = {
                "net": name,
                "hardware": hardware(),
                "precision": precision,
                "steps": time,
                "loss": None if value is None else float(value),  # of the batch before the last step
                "params": igr.num_params(params),
                "method": method,
                "kinks": kinks,
                "default": float(np.median([own[at["default"]] for own, _, _ in found])),
                "error": error,
                "shortened": float(np.median([own[at["shortened"]] for own, _, _ in found])),
                "shortened ratio": shortened / float(middle[best]),
                "best": RADII[best],
                "best error": float(middle[best]),
                "ratio": error / float(middle[best]),
                "curvature": float(np.median([n[0] for _, n, _ in found])),
                "2E/|g|": [n[1] for _, n, _ in found],
                "errors": table.tolist(),
            }
            if method == "forward":  # what two steps on different sides see in the mean
                both = float(over([t[len(RADII) + at["default"], 1] for _, _, t in found]))
                row |= {"both sides": both, "both sides ratio": both / float(middle[best])}
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one batch and fewer steps")
    parser.add_argument("--hold", action="store_true", help='kinks="hold", on networks that have kinks')
    parser.add_argument("--only", default="", metavar="TEXT", help="the networks whose name has this in it")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too; rows that it has are kept")
    options = parser.parse_args()
    if jax.default_backend() == "cpu":  # nearly all of the time would be compilation
        jax.config.update("jax_disable_most_optimizations", True)
    times, batches = ((0, 20), 1) if options.quick else ((0, 60, 600), 3)
    rows, file = [], Path(options.json) if options.json else None
    if file is not None and file.exists():
        rows = json.loads(file.read_text())["rows"]
    for name, (params, apply, batch) in panel(options.full).items():
        for precision in PRECISIONS:
            if options.only not in name or any((r["net"], r["precision"]) == (name, precision) for r in rows):
                continue
            if options.hold and not igr.has_kinks(
                lambda p, a=apply, b=batch: loss_of(a, jnp.float32)(p, *b(0)), params
            ):
                continue
            for row in rows_of(name, params, apply, batch, precision, times, batches, options.hold):
                rows.append(row)
                print(*(row[k] for k in ("net", "precision", "steps", "method")), f"{row['ratio']:.2f}", flush=True)
            if file is not None:
                known = {"hardware": hardware(), "radii": RADII, "rows": rows}
                file.write_text(json.dumps(known, indent=1) + "\n")
    print(f"\n{hardware()}\n")
    print(table_of(rows))


def table_of(rows) -> str:
    """One line for each network and precision: the forward difference at the start, during and at the end."""
    header = ["net", "parameters", "precision", "steps", "loss", "best", "error there", "default", "error there"]
    header += ["ratio", "shortened, ratio", "both sides, ratio", "central, ratio"]
    cells = []
    for row, other in zip(rows[::2], rows[1::2], strict=True):  # forward and central
        names = ["best", "best error", "default", "error", "ratio", "shortened ratio", "both sides ratio"]
        cells.append(
            [row["net"], f"{row['params']:,}", row["precision"], str(row["steps"])]
            + ["-" if row["loss"] is None else f"{row['loss']:.2g}"]
            + [f"{row[k]:.2g}" for k in names]
            + [f"{other['ratio']:.2g}"]
        )
    return markdown(header, cells)


if __name__ == "__main__":
    main()
