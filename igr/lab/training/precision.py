"""The precisions of a training, and the contexts in which its programs are traced."""

import contextlib
from collections.abc import Iterator

import jax

PRECISIONS = ("default", "highest", "bfloat16")


def matmul_precision(name: str) -> contextlib.AbstractContextManager:
    """The context in which to trace at the precision `name`: "highest" is float32, "default" the device's choice."""
    return jax.default_matmul_precision("highest") if name == "highest" else contextlib.nullcontext()


@contextlib.contextmanager
def usual_promotion() -> Iterator[None]:
    """The context in which to trace code of others, such as optimizers: it may rely on JAX's default promotions."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
