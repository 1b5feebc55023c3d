"""What the modified equation costs against its order: Taylor mode, the Lie-derivative recursion, and iterates alone.

    python benchmarks/orders.py [--orders 6] [--lie 4]

On a tanh network of 9,880 parameters in float64. `modified_field` and the recursion differentiate the field;
`step_field` only evaluates the step. Compile time is apart; run time is a ratio to one evaluation of the field.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from timing import hardware, interleaved, markdown, median

import igr

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers import lie_terms  # the tests' oracle
from problems import mlp_loss


def compiled(function, params):
    start = time.perf_counter()
    program = jax.jit(function).lower(params).compile()
    return (lambda: program(params)), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=6)
    parser.add_argument(
        "--lie", type=int, default=3, help="highest order of the recursion (4 takes a minute to compile)"
    )
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    loss, params, args = mlp_loss(jax.random.key(0), sizes=(20, 100, 70, 10), dtype=jnp.float64)
    field, h = igr.gradient_field(lambda p: loss(p, *args)), 0.1
    programs, compile_s = {}, {}
    programs["f"], _ = compiled(field, params)
    for n in range(1, options.orders + 1):
        programs[f"taylor {n}"], compile_s[f"taylor {n}"] = compiled(igr.modified_field(field, h, n), params)
        # n + 1 iterates give the same order of accuracy as f_0 ... f_n
        step = igr.step_field(lambda p: igr.calculus.add_scaled(p, h, field(p)), n + 1)
        programs[f"step {n}"], compile_s[f"step {n}"] = compiled(step, params)
        if n <= options.lie:
            terms = lie_terms(field, n)

            def summed(p, terms=terms):
                total = terms[0](p)
                for k, term in enumerate(terms[1:], start=1):
                    total = igr.calculus.add_scaled(total, h**k, term(p))
                return total

            programs[f"lie {n}"], compile_s[f"lie {n}"] = compiled(summed, params)
    seconds = {name: median(s) for name, s in interleaved(programs, 9).items()}

    def cell(name):
        return f"{seconds[name] / seconds['f']:.1f} ({compile_s[name]:.1f} s)" if name in seconds else "-"

    print(f"{hardware()}; {igr.num_params(params)} parameters, float64, medians of 9\n")
    header = ["order", "modified_field, Taylor mode", "Lie recursion", "step_field (order + 1 steps)"]
    rows = [[str(n), cell(f"taylor {n}"), cell(f"lie {n}"), cell(f"step {n}")] for n in range(1, options.orders + 1)]
    print("run time over one evaluation of the field (compile time)\n\n" + markdown(header, rows))


if __name__ == "__main__":
    main()
