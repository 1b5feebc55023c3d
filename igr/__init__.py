"""Implicit gradient regularization: what the discrete steps of gradient descent add to the loss.

For a loss E on m parameters theta and a step size h, gradient descent follows the gradient flow of the modified loss

    E~(theta) = E(theta) + lambda R(theta),   R = |grad E|^2 / m,   lambda = h m / 4,

more closely than that of E: one step lies within O(h^3) of the flow of E~ and within O(h^2) of the flow of E (Barrett &
Dherin, Implicit Gradient Regularization, ICLR 2021, Theorem 3.1). Everything here takes a function, as `jax.grad` does:
`loss(params, *args, **kwargs) -> scalar` on any pytree of parameters. The experiments live in `igr.lab`.
"""

import importlib

TYPE_CHECKING = False  # as in `typing`, which takes longer to import than all that is here

if TYPE_CHECKING:  # what type checkers and editors see; at run time each name is imported when it is first asked for
    from igr import kernel as kernel
    from igr import optimizers as optimizers
    from igr.batches import full_batch as full_batch
    from igr.calculus import derivative as derivative
    from igr.calculus import gradient_field as gradient_field
    from igr.calculus import gradient_step as gradient_step
    from igr.calculus import hvp as hvp
    from igr.calculus import squared_norm as squared_norm
    from igr.flows import descend as descend
    from igr.flows import distance as distance
    from igr.flows import flow as flow
    from igr.flows import observed_order as observed_order
    from igr.geometry import angle as angle
    from igr.geometry import cos_angle as cos_angle
    from igr.geometry import metric_determinant as metric_determinant
    from igr.geometry import norm_bound as norm_bound
    from igr.geometry import normal as normal
    from igr.geometry import perturb as perturb
    from igr.geometry import slope as slope
    from igr.modified.euler import modified_field as modified_field
    from igr.modified.euler import modified_terms as modified_terms
    from igr.modified.iterates import step_field as step_field
    from igr.monitoring.transformation import monitor as monitor
    from igr.monitoring.transformation import readings as readings
    from igr.penalty.error import penalty_error as penalty_error
    from igr.penalty.filtered import filter_value_and_grad as filter_value_and_grad
    from igr.penalty.gradient import value_and_grad as value_and_grad
    from igr.penalty.kinks import has_kinks as has_kinks
    from igr.penalty.radius import default_radius as default_radius
    from igr.penalty.resolution import resolution as resolution
    from igr.regimes.diagnosis import regime as regime
    from igr.regimes.sharpness import critical_sharpness as critical_sharpness
    from igr.regimes.sharpness import directional_curvature as directional_curvature
    from igr.regimes.sharpness import sharpness as sharpness
    from igr.regimes.stability import largest_mu as largest_mu
    from igr.regimes.stability import stability_limit as stability_limit
    from igr.regimes.truncation import moderate_bound as moderate_bound
    from igr.regimes.verdicts import verdict as verdict
    from igr.regularization import implicit_rate as implicit_rate
    from igr.regularization import modified_loss as modified_loss
    from igr.regularization import num_params as num_params
    from igr.regularization import regularizer as regularizer

__version__ = "0.2.0"

_NAMES = {
    "igr.batches": "full_batch",
    "igr.calculus": "derivative gradient_field gradient_step hvp squared_norm",
    "igr.flows": "descend distance flow observed_order",
    "igr.geometry": "angle cos_angle metric_determinant norm_bound normal perturb slope",
    "igr.modified.euler": "modified_field modified_terms",
    "igr.modified.iterates": "step_field",
    "igr.monitoring.transformation": "monitor readings",
    "igr.penalty.error": "penalty_error",
    "igr.penalty.filtered": "filter_value_and_grad",
    "igr.penalty.gradient": "value_and_grad",
    "igr.penalty.kinks": "has_kinks",
    "igr.penalty.radius": "default_radius",
    "igr.penalty.resolution": "resolution",
    "igr.regimes.diagnosis": "regime",
    "igr.regimes.sharpness": "critical_sharpness directional_curvature sharpness",
    "igr.regimes.stability": "largest_mu stability_limit",
    "igr.regimes.truncation": "moderate_bound",
    "igr.regimes.verdicts": "verdict",
    "igr.regularization": "implicit_rate modified_loss num_params regularizer",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name, or a module of the first floor, when it is first asked for.

    Importing JAX takes a second or two, in which a command could neither answer nor be stopped.
    """
    if name in _WHERE:
        found = getattr(importlib.import_module(_WHERE[name]), name)
    elif name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        try:
            found = importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*_WHERE, "kernel", "optimizers", *(name for name in globals() if name.startswith("__"))])
