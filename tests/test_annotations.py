"""Annotations: checked while the tests run, few of them `Any`, and true inside `vmap`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import architecture
import jax
import jax.numpy as jnp
import jaxtyping
import pytest
from typed import without_torch

import igr
from igr.calculus import squared_norm
from igr.lab.training.engine import Rates, Stack


@pytest.fixture
def checked(annotations):
    """Checks are on, although the test expects errors."""
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("wrong", ["text", {"w": "text"}, [object()]])
def test_a_value_that_its_annotation_forbids_fails_a_test(wrong):
    assert float(squared_norm({"w": jnp.ones(2)})) == 2
    with pytest.raises(jaxtyping.TypeCheckError):
        squared_norm(wrong)


@pytest.mark.usefixtures("checked")
def test_a_result_that_its_annotation_forbids_fails_a_test():
    """The annotation says a scalar: an array with an axis is none."""
    with pytest.raises(jaxtyping.TypeCheckError):
        igr.kernel.regularizer(lambda w, x: x * w, jnp.ones(2))(jnp.ones(()), jnp.ones(3), jnp.ones(3))


def annotations_of(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            a = node.args
            arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(each for each in (a.vararg, a.kwarg) if each)]
            yield from (each.annotation for each in arguments if each.annotation)
            yield from [node.returns] if node.returns else []
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation


def share_of_any(source: list[ast.Module]) -> float:
    """The share of annotations that hold an `Any`."""
    every = [annotation for tree in source for annotation in annotations_of(tree)]
    vague = [each for each in every if any(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(each))]
    return len(vague) / len(every)


def test_fewer_than_a_tenth_of_the_core_annotations_hold_any():
    core = [tree for module, tree in architecture.modules() if architecture.room(module) == "igr"]
    assert share_of_any(core) < 0.1
    assert share_of_any([ast.parse("def f(x: Any, *y: int, **z: list[Any]) -> int: ...")]) == 0.5


def test_annotations_of_a_stack_hold_for_the_stack_and_for_one_replica_inside_vmap():
    def of_rates(rates: Rates) -> None:
        for value, annotation in zip(rates, Rates.__annotations__.values(), strict=True):
            assert isinstance(value, annotation)

    def of_stack(stack: Stack) -> None:
        assert isinstance(stack.diverged, Stack.__annotations__["diverged"])

    rates, stack = Rates(jnp.ones(3), jnp.ones(3)), Stack((), (), jnp.zeros(3, jnp.int32))
    of_rates(rates)
    of_stack(stack)
    jax.vmap(of_rates)(rates)
    jax.vmap(of_stack)(stack)


def test_types_are_checked_where_pytorch_is_not_installed():
    root = Path(__file__).parents[1]
    names = without_torch(root)
    assert {"igr/calculus.py", "igr/penalty/gradient.py", "tests/test_annotations.py"} <= set(names)
    assert not [name for name in names if re.search(r"^ *import torch", (root / name).read_text(), re.MULTILINE)]
    assert len(names) > 0.8 * len([*root.glob("igr/**/*.py"), *root.glob("tests/**/*.py")])
