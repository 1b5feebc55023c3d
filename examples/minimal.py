"""The paper's idea in plain JAX: gradient descent follows E + (h/4)|grad E|^2 more closely than it follows E.

Run it: python examples/minimal.py. It needs jax alone and takes seconds. After Barrett & Dherin, Implicit Gradient
Regularization, ICLR 2021, section 5: the model y = abx on one data point, whose minima are the hyperbola ab = 0.6.
"""

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)  # the effect is of order h; rounding must not be

H = 0.025  # the paper's moderate learning rate
STEPS = 400
START = jnp.array([2.8, 3.5])


def loss(theta):
    a, b = theta
    return (0.6 - a * b) ** 2 / 2


def modified_loss(theta, h):
    """E~ = E + (h/4)|grad E|^2 = E + lambda R, with R = |grad E|^2 / m and lambda = h m / 4."""
    gradient = jax.grad(loss)(theta)
    return loss(theta) + h / 4 * gradient @ gradient


def gradient_descent(theta, h, steps):
    return jax.lax.fori_loop(0, steps, lambda _, x: x - h * jax.grad(loss)(x), theta)


def flow(field, theta, time, substeps):
    """The solution of theta' = field(theta) by the classical Runge-Kutta method, in steps far smaller than h."""
    dt = time / substeps

    def step(_, x):
        k1 = field(x)
        k2 = field(x + dt / 2 * k1)
        k3 = field(x + dt / 2 * k2)
        k4 = field(x + dt * k3)
        return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return jax.lax.fori_loop(0, substeps, step, theta)


def one_step_errors(h):
    """How far one step of descent is from the flow of E, and from the flow of E~, for the same time h."""
    step = gradient_descent(START, h, 1)
    of_loss = flow(lambda x: -jax.grad(loss)(x), START, h, 100)
    of_modified = flow(lambda x: -jax.grad(modified_loss)(x, h), START, h, 100)
    return jnp.linalg.norm(step - of_loss), jnp.linalg.norm(step - of_modified)


def main():
    end = gradient_descent(START, H, STEPS)
    along_loss = flow(lambda x: -jax.grad(loss)(x), START, H * STEPS, 100 * STEPS)
    along_modified = flow(lambda x: -jax.grad(modified_loss)(x, H), START, H * STEPS, 100 * STEPS)
    print(f"gradient descent at h = {H} ends at      {end[0]:.4f}, {end[1]:.4f}")
    for name, point in [("E ", along_loss), ("E~", along_modified)]:
        distance = jnp.linalg.norm(end - point)
        print(f"the flow of {name} for the same time ends at {point[0]:.4f}, {point[1]:.4f}: {distance:.4f} away")
    coarse, fine = one_step_errors(1e-3), one_step_errors(5e-4)
    for name, e, e_half in zip(["E ", "E~"], coarse, fine, strict=True):
        print(f"one step against the flow of {name}: halving h divides the error by {e / e_half:.2f}")
    print("so the error is of order h^2 for E and h^3 for E~: the steps themselves regularize")


if __name__ == "__main__":
    main()
