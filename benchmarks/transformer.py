"""What the penalty, R_IG and the monitor cost on GPT-2 (124 M parameters, bfloat16 compute); PyTorch beside it.

    python benchmarks/transformer.py --json FILE     one GPU; `--tiny` rehearses it on any machine

Time: medians of steps with an SGD update, all cases taking turns. Memory: what the compiled step allocates beside its
inputs, and the state of a monitor (PyTorch: its peak less what was held before). Ratios are to the plain gradient with
the same attention. A monitor with `every=k` costs its row in each step, and in each k-th what the row of the sharpness
has more. How exact the differences are is the second table.
"""

import argparse
import json
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from networks import gpt, loss_of, text
from timing import hardware, interleaved, markdown, median, spread

import igr

MU, RATE = 0.01, 1e-3
RADII = (1e-3, 3e-3, 1e-2, 3e-2, 6.25e-2, 0.1, 0.2)


def sizes(tiny):
    """(layers, width, heads, vocabulary, length, batch)."""
    return (2, 32, 2, 96, 16, 2) if tiny else (12, 768, 12, 50304, 1024, 8)


def cases(loss):
    def plain(params, mu, x, y):
        return jax.value_and_grad(loss)(params, x, y)

    def ours(method, traced=False, **options):
        def both(params, mu, x, y):
            return igr.value_and_grad(loss, mu if traced else MU, method, **options)(params, x, y)

        return both

    def by_hand(params, mu, x, y):
        """The two passes one after the other, as a user writes them."""
        value, g = jax.value_and_grad(loss)(params, x, y)
        eps = 0.02 * jax.lax.rsqrt(igr.squared_norm(g))
        ahead = jax.grad(loss)(jax.tree.map(lambda p, d: p + eps * d, params, g), x, y)
        return value, jax.tree.map(lambda a, b: b + 2 * MU / eps * (a - b), ahead, g)

    def with_norm(mu0, method="forward"):
        def both(params, mu, x, y):
            (value, norm2), grads = igr.value_and_grad(loss, mu0, method, with_norm=True)(params, x, y)
            return (value, norm2 / igr.num_params(params)), grads

        return both

    return {
        "plain gradient": plain,
        "plain, also R_IG": with_norm(0.0),
        "igr forward": ours("forward"),
        "igr forward, also R_IG": with_norm(MU),
        "igr forward, mu traced": ours("forward", traced=True),
        "igr forward, two micro-batches": ours("forward", microbatches=2),
        "forward by hand": by_hand,
        "igr central": ours("central"),
        "igr exact": ours("exact"),
    }


def monitors():
    """Monitors of a plain step of SGD; the last one measures the sharpness in the step that is timed."""
    return {
        "monitor, noise=False": igr.monitor(optax.sgd(RATE), learning_rate=RATE, noise=False),
        "monitor": igr.monitor(optax.sgd(RATE), learning_rate=RATE),
        "monitor, sharpness in this step": igr.monitor(optax.sgd(RATE), learning_rate=RATE, every=1),
    }


def steps(loss, params):
    """Name -> a training step `(params, state, mu, x, y)`, and its first state."""

    def updated(both):
        def step(params, state, mu, x, y):
            value, grads = both(params, mu, x, y)
            return jax.tree.map(lambda p, g: p - RATE * g, params, grads), state, value

        return step

    def watched(tx):
        def step(params, state, mu, x, y):
            value, grads = jax.value_and_grad(loss)(params, x, y)
            updates, state = tx.update(grads, state, params, value=value, value_fn=lambda p: loss(p, x, y))
            return optax.apply_updates(params, updates), state, value

        return step

    found = {name: (updated(both), ()) for name, both in cases(loss).items()}
    return found | {name: (watched(tx), tx.init(params)) for name, tx in monitors().items()}


def jax_rows(tiny, attention, rounds):
    layers, width, heads, vocabulary, length, batch = sizes(tiny)
    params, apply = gpt(layers, width, heads, vocabulary, length, attention)
    loss = loss_of(apply, jnp.bfloat16)
    stream = text(jax.random.key(1), batch, length, vocabulary)
    x, y = stream[:, :-1], stream[:, 1:]
    programs, memory, compiling, rows = {}, {}, {}, []
    for name, (step, state) in steps(loss, params).items():
        start = time.perf_counter()
        try:
            program = jax.jit(step).lower(params, state, jnp.float32(MU), x, y).compile()
        except (TypeError, NotImplementedError, ValueError) as error:
            rows.append({"attention": attention or "default", "step": name, "fails": str(error).splitlines()[0]})
            continue
        compiling[name] = time.perf_counter() - start
        held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        memory[name] = program.memory_analysis().temp_size_in_bytes + held
        programs[name] = lambda program=program, state=state: program(params, state, jnp.float32(MU), x, y)
    seconds = interleaved(programs, rounds)
    base, first = median(seconds["plain gradient"]), memory["plain gradient"]
    for name, s in seconds.items():
        row = {"attention": attention or "default", "step": name, "ms": median(s) * 1e3, "ratio": median(s) / base}
        row |= {"spread": spread(s), "GiB": memory[name] / 2**30, "memory ratio": memory[name] / first}
        rows.append(row | {"compile s": compiling[name]})
    return rows


def errors(tiny, steps):
    """The error of the differences at the start and after Adam, with XLA's attention, which knows forward mode."""
    layers, width, heads, vocabulary, length, batch = sizes(tiny)
    params, apply = gpt(layers, width, heads, vocabulary, length, "xla")
    loss = loss_of(apply, jnp.bfloat16)
    stream = text(jax.random.key(1), batch * 32, length, vocabulary)
    optimizer = optax.adam(3e-4)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, batch):
        updates, state = optimizer.update(jax.grad(loss)(params, batch[:, :-1], batch[:, 1:]), state, params)
        return optax.apply_updates(params, updates), state

    found = []
    for done in range(steps + 1):
        rows = stream[(done % 32) * batch : (done % 32 + 1) * batch]
        if done in (0, steps):
            table = igr.penalty_error(loss, params, rows[:, :-1], rows[:, 1:], radii=RADII)
            row = {"steps": done, "radius": list(RADII), "forward": table.forward.tolist()}
            row |= {"central": table.central.tolist(), "default": table.default, "error": table.error}
            found.append(row | {"curvature": table.curvature})
            print(f"after {done} steps\n{table}\n", flush=True)
        params, state = step(params, state, rows)
    return found


def torch_rows(tiny, rounds):
    """The same network in PyTorch with SDPA and autocast: plain, by hand, and with `igr.torch`."""
    try:
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        import igr.torch
    except ImportError as error:
        return [{"attention": "SDPA", "step": "PyTorch", "fails": str(error)}]
    layers, width, heads, vocabulary, length, batch = sizes(tiny)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dropouts = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=length, n_embd=width, n_layer=layers, n_head=heads, **dropouts
    )
    config._attn_implementation = "sdpa"
    model = GPT2LMHeadModel(config).to(device)
    weights = list(model.parameters())
    x = torch.as_tensor(np.array(text(jax.random.key(1), batch, length - 1, vocabulary)), device=device).long()

    def value():
        with torch.autocast(device, dtype=torch.bfloat16):
            return model(x, labels=x).loss

    def plain():
        return torch.autograd.grad(value(), weights)

    def forward():
        g = plain()
        with torch.no_grad():
            eps = 0.02 / torch.sqrt(sum((d.float() ** 2).sum() for d in g))
            torch._foreach_add_([*weights], [eps * d for d in g])
        ahead = plain()
        with torch.no_grad():
            torch._foreach_sub_([*weights], [eps * d for d in g])
            return [d + 2 * MU / eps * (a - d) for a, d in zip(ahead, g, strict=True)]

    def double():
        energy = value()
        g = torch.autograd.grad(energy, weights, create_graph=True)
        return torch.autograd.grad(energy + MU * sum((d**2).sum() for d in g), weights)

    def also_norm():
        g = plain()
        square = torch.stack(torch._foreach_norm(g)).square().sum()
        return g, square / igr.torch.num_params(model)

    def ours(mu):
        def run():
            igr.torch.backward(model, value, mu=mu)
            return [w.grad for w in weights]

        return run

    def update(grads):
        torch._foreach_add_([w.data for w in weights], grads, alpha=-RATE)
        for w in weights:
            w.grad = None

    def stepped(gradient):
        return lambda: lambda: update(gradient())

    def monitored(**options):
        """Made when its turn comes, since it keeps copies of the parameters."""
        optimizer, monitor = torch.optim.SGD(weights, lr=RATE), igr.torch.Monitor(**options)
        monitor.attach(optimizer, model, value)

        def run():
            energy = value()
            energy.backward()
            monitor.loss = energy.detach()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return run

    rows, base = [], None
    cases = {  # what makes a step, when its turn comes
        "PyTorch plain": stepped(plain),
        "PyTorch plain, also R_IG": stepped(lambda: also_norm()[0]),
        "PyTorch forward": stepped(forward),
        "PyTorch double backward": stepped(double),
        "igr.torch, mu = 0 (R_IG only)": stepped(ours(0.0)),
        "igr.torch forward, also R_IG": stepped(ours(MU)),
        "igr.torch monitor, noise=False": lambda: monitored(noise=False),
        "igr.torch monitor": monitored,
        "igr.torch monitor, sharpness in this step": lambda: monitored(every=1),
    }
    for name, make in cases.items():
        try:
            if device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated() if device == "cuda" else 0
            seconds = interleaved({name: synchronized(make(), device)}, rounds)[name]
        except RuntimeError as error:
            rows.append({"attention": "SDPA", "step": name, "fails": str(error).splitlines()[0]})
            continue
        peak = (torch.cuda.max_memory_allocated() - held if device == "cuda" else 0) / 2**30
        base = base or (median(seconds), peak)
        row = {"attention": "SDPA", "step": name, "ms": median(seconds) * 1e3, "ratio": median(seconds) / base[0]}
        row |= {"spread": spread(seconds), "GiB": peak, "memory ratio": peak / base[1] if base[1] else float("nan")}
        rows.append(row)
    return rows


def synchronized(run, device):
    """A step of PyTorch that has ended when it returns."""
    if device != "cuda":
        return run
    import torch

    def waiting():
        run()
        torch.cuda.synchronize()

    return waiting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a network of 30,000 parameters, for a rehearsal")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60, help="of Adam before the second table of errors")
    parser.add_argument(
        "--only", default="cudnn,xla,errors,torch", metavar="PARTS", help="of cudnn, xla, errors, torch"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs its share
    parts = options.only.split(",")
    rows, table = [], []
    for attention in ("cudnn", "xla"):
        if attention in parts and not (options.tiny and attention == "cudnn"):
            rows += jax_rows(options.tiny, attention, options.rounds)
    if "errors" in parts:
        table = errors(options.tiny, options.steps)
    if "torch" in parts:
        rows += torch_rows(options.tiny, options.rounds)
    print(f"{hardware()}\n")
    header = ["attention", "step", "ms", "ratio", "spread", "GiB", "memory ratio"]
    cells = [
        [r["attention"], r["step"], f"fails: {r['fails']}", "", "", "", ""]
        if "fails" in r
        else [r["attention"], r["step"], *(f"{r[k]:.3g}" for k in header[2:])]
        for r in rows
    ]
    print(markdown(header, cells))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"hardware": hardware(), "rows": rows, "errors": table}, file, indent=1)


if __name__ == "__main__":
    main()
