"""What is measured and penalized on many devices is what one device finds; run by test_sharding.py, in own processes.

python tests/sharded.py                   eight virtual devices of one process
python tests/sharded.py PROCESS PORT      one of two processes with four devices each
"""

import re
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import igr

MU, RATE, RADIUS, STEPS = 0.1, 0.05, 0.1, 3
COLLECTIVE = re.compile(r"= (.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


def loss(params, x, y, gather=lambda w: w):
    """The mean square of a network of two layers; `gather` makes a parameter whole before it is used."""
    hidden = jnp.tanh(x @ gather(params["w"]) + gather(params["b"]))
    return jnp.mean((hidden @ gather(params["v"]) - y) ** 2)


def quantities(loss):
    """Name -> function of (params, x, y): everything that is promised, as arrays."""

    def penalized(method):
        def both(params, x, y):
            options = {"radius": RADIUS, "with_norm": True}
            (value, norm2), grads = igr.value_and_grad(loss, MU, method, **options)(params, x, y)
            return value, norm2, grads

        return both

    def monitored(params, x, y):
        tx = igr.monitor(optax.sgd(RATE), learning_rate=RATE, every=2)
        state = tx.init(params)
        for _ in range(STEPS):
            value, grads = jax.value_and_grad(loss)(params, x, y)
            updates, state = tx.update(grads, state, params, value=value, grad_fn=lambda p: jax.grad(loss)(p, x, y))
            params = optax.apply_updates(params, updates)
        return igr.readings(state), params

    def free(params, x, y):
        """A step of a monitor that measures no sharpness and samples a few entries of each array."""
        tx = igr.monitor(optax.sgd(RATE), learning_rate=RATE, sample=8)
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = tx.update(grads, tx.init(params), params, value=value)
        return igr.readings(state), optax.apply_updates(params, updates)

    def diagnosed(params, x, y):
        found = igr.regime(loss, RATE, products=4)(params, x, y)
        return found._replace(sharpness=found.sharpness._replace(vector=None))  # of either sign

    return {
        "plain": jax.value_and_grad(loss),
        "exact": penalized("exact"),
        "forward": penalized("forward"),
        "regularizer": igr.regularizer(loss),
        "regime": diagnosed,
        "monitor": monitored,
        "step of a monitor": free,
    }


def problem():
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = {"w": (16, 24), "b": (24,), "v": (24, 8)}
    params = {name: jax.random.normal(key, shapes[name]) / 4 for name, key in zip(shapes, keys, strict=False)}
    return params, jax.random.normal(keys[3], (32, 16)), jax.random.normal(keys[4], (32, 8))


def layouts(kind):
    """Name -> mesh, the axes over which parameters are sharded, the axes over which data are."""
    line = jax.make_mesh((8,), ("data",), axis_types=(kind,))
    plane = jax.make_mesh((2, 4), ("data", "shard"), axis_types=(kind, kind))
    return {"data": (line, None, "data"), "fsdp": (line, "data", "data"), "both": (plane, "shard", ("data", "shard"))}


def whole(tree, mesh):
    """The values of a tree of global arrays, on the host."""
    everywhere = jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, P()))(tree)
    return jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), everywhere)


def put(value, mesh, spec):
    value = np.asarray(value)
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])


def agree(found, wanted, words):
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(wanted), strict=True):
        scale = 1e-6 * max(1e-3, float(np.max(np.abs(b))))
        assert np.allclose(a, b, rtol=0, atol=scale, equal_nan=True), (words, jax.tree_util.keystr(path), a, b)


def collectives(program):
    """The sizes of what each kind of collective operation of a compiled program makes."""
    found = {}
    for shapes, kind in COLLECTIVE.findall(program.as_text()):
        sizes = [np.prod([int(n) for n in dims.split(",") if n]) for dims in re.findall(r"\[([\d,]*)\]", shapes)]
        found.setdefault(kind, []).extend(int(size) for size in sizes)
    return found


def check_collectives(programs, largest, words):
    """No more communication for a gradient than the plain one has, but for sums of a few numbers."""
    found = {name: collectives(program) for name, program in programs.items()}

    def large(name):
        """How many of each kind carry more than a few numbers."""
        return Counter({kind: sum(size > 8 for size in sizes) for kind, sizes in found[name].items()})

    for name, gradients in (("exact", 3), ("forward", 2), ("regularizer", 1), ("step of a monitor", 1)):
        for kind, count in large(name).items():
            if name == "step of a monitor" and kind == "collective-permute":
                continue  # pieces of the sample
            assert count <= gradients * large("plain")[kind], (words, name, kind, count, large("plain"))
    for name, kinds in found.items():
        for size in kinds.get("all-gather", []):
            assert size <= largest, (words, name, "gathers more than one parameter", size)
    if not found["plain"].get("all-gather"):
        assert not any(kinds.get("all-gather") for kinds in found.values()), (words, found)
    return large("plain"), large("forward")


def check_sharded(kinds):
    params, x, y = problem()
    wanted = {name: jax.tree.map(np.asarray, jax.jit(f)(params, x, y)) for name, f in quantities(loss).items()}
    largest = max(leaf.size for leaf in jax.tree.leaves(params))
    for kind, names in kinds.items():
        for layout in names:
            words, (mesh, shard, batch) = (kind.name, layout), layouts(kind)[layout]
            gather = (lambda w: jax.sharding.reshard(w, P())) if kind is AxisType.Explicit and shard else (lambda w: w)
            with jax.set_mesh(mesh):
                p = {name: put(leaf, mesh, P(shard)) for name, leaf in params.items()}
                a, b = put(x, mesh, P(batch)), put(y, mesh, P(batch))
                programs = {}
                for name, f in quantities(lambda p, x, y, gather=gather: loss(p, x, y, gather)).items():
                    own = jax.tree.map(lambda leaf: leaf.sharding, p)  # gradients lie where the parameters do
                    out = {"plain": (None, own), "regularizer": None, "regime": None}
                    out |= {"monitor": (None, own), "step of a monitor": (None, own)}
                    programs[name] = jax.jit(f, out_shardings=out.get(name, (None, None, own))).lower(p, a, b).compile()
                    agree(whole(programs[name](p, a, b), mesh), wanted[name], (*words, name))
                plain, forward = check_collectives(programs, largest, words)
                print(*words, "plain", dict(plain), "forward", dict(forward))


def check_mapped():
    """Inside `shard_map`: parameters everywhere or sharded; a loss that averages over devices by itself, or `axis`.

    And around a loss that is a `shard_map` itself, with sharded parameters.
    """
    params, x, y = problem()
    wanted = {name: jax.tree.map(np.asarray, jax.jit(f)(params, x, y)) for name, f in quantities(loss).items()}
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    a, b = put(x, mesh, P("data")), put(y, mesh, P("data"))
    p = {name: put(leaf, mesh, P()) for name, leaf in params.items()}

    def averaged(params, x, y):
        return jax.lax.pmean(loss(params, x, y), "data")

    for name, f in quantities(averaged).items():
        mapped = jax.shard_map(f, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P())
        agree(whole(jax.jit(mapped)(p, a, b), mesh), wanted[name], ("shard_map", name))

    def fully(params, x, y):
        return loss(params, x, y, lambda w: jax.lax.all_gather(w, "data", tiled=True))

    def both(params, x, y):
        return igr.value_and_grad(fully, MU, "forward", radius=RADIUS, with_norm=True, axis="data")(params, x, y)

    shards = {name: put(leaf, mesh, P("data")) for name, leaf in params.items()}
    specs = {name: P("data") for name in params}
    around = jax.shard_map(
        lambda *args: jax.lax.pmean(fully(*args), "data"),
        mesh=mesh,
        in_specs=(specs, P("data"), P("data")),
        out_specs=P(),
    )
    for name, f in quantities(around).items():
        agree(whole(jax.jit(f)(shards, a, b), mesh), wanted[name], ("shard_map around the loss", name))
    mapped = jax.shard_map(both, mesh=mesh, in_specs=(specs, P("data"), P("data")), out_specs=((P(), P()), specs))
    (value, norm2), grads = jax.jit(mapped)(shards, a, b)
    agree(whole((value, norm2, grads), mesh), wanted["forward"], ("shard_map", "fsdp"))


def check_held():
    """Choices between what varies, made once and kept: data on all devices, by the compiler and inside `shard_map`."""
    params, x, y = problem()

    def kinked(params, x, y):
        hidden = jax.nn.relu(x @ params["w"] + params["b"])
        return jnp.mean((jnp.max(hidden.reshape(len(x), 6, 4), -1) @ params["v"][:6] - y) ** 2)

    def held(params, x, y, **options):
        return igr.value_and_grad(kinked, MU, "central", kinks="hold", with_norm=True, **options)(params, x, y)

    wanted = jax.tree.map(np.asarray, igr.value_and_grad(kinked, MU, with_norm=True)(params, x, y))
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((8,), ("data",), axis_types=(kind,))
        with jax.set_mesh(mesh):
            p = {name: put(leaf, mesh, P()) for name, leaf in params.items()}
            a, b = put(x, mesh, P("data")), put(y, mesh, P("data"))
            agree(whole(jax.jit(held)(p, a, b), mesh), wanted, (kind.name, "held"))
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(
        lambda *args: held(*args, axis="data"), mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P()
    )
    agree(whole(jax.jit(mapped)(params, x, y), mesh), wanted, ("shard_map", "held"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 4 if len(sys.argv) > 1 else 8)
    if len(sys.argv) > 1:
        jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", num_processes=2, process_id=int(sys.argv[1]))
        check_sharded({AxisType.Auto: ("data", "fsdp", "both")})
    else:
        check_sharded({AxisType.Auto: ("data", "fsdp", "both"), AxisType.Explicit: ("data", "fsdp", "both")})
        check_mapped()
        check_held()
    print("done")
