"""Implicit gradient regularization: what the discrete steps of gradient descent add to the loss.

For a loss E on m parameters theta and a step size h, gradient descent follows the gradient flow of the modified loss

    E~(theta) = E(theta) + lambda R(theta),   R = |grad E|^2 / m,   lambda = h m / 4,

more closely than that of E: one step lies within O(h^3) of the flow of E~ and within O(h^2) of the flow of E (Barrett &
Dherin, Implicit Gradient Regularization, ICLR 2021, Theorem 3.1). Everything here takes a function, as `jax.grad` does:
`loss(params, *args, **kwargs) -> scalar` on any pytree of parameters. The experiments live in `igr.lab`.
"""

from igr import kernel as kernel
from igr.calculus import derivative as derivative
from igr.calculus import full_batch as full_batch
from igr.calculus import gradient_field as gradient_field
from igr.calculus import gradient_step as gradient_step
from igr.calculus import hvp as hvp
from igr.calculus import squared_norm as squared_norm
from igr.explicit import value_and_grad as value_and_grad
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
from igr.modified import modified_field as modified_field
from igr.modified import modified_terms as modified_terms
from igr.modified import step_field as step_field
from igr.regularizer import implicit_rate as implicit_rate
from igr.regularizer import modified_loss as modified_loss
from igr.regularizer import num_params as num_params
from igr.regularizer import regularizer as regularizer

__version__ = "0.1.0"
