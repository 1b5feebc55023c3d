"""Timing several programs side by side: interleaved rounds, medians, and ratios measured in one run."""

import platform
import statistics
import time
from collections.abc import Callable

import jax


def interleaved(programs: dict[str, Callable[[], object]], rounds: int, warm: bool = True) -> dict[str, list[float]]:
    """Seconds of each program in each round. All take turns, so that a drift of the machine falls on all alike."""
    for program in programs.values() if warm else ():  # compile and warm up
        jax.block_until_ready(program())
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program())
            seconds[name].append(time.perf_counter() - start)
    return seconds


def median(xs: list[float]) -> float:
    return statistics.median(xs)


def spread(xs: list[float]) -> float:
    """Half the interquartile range over the median: how far a ratio of medians can be trusted."""
    if len(xs) < 4:
        return (max(xs) - min(xs)) / 2 / median(xs)
    low, _, high = statistics.quantiles(xs, n=4)
    return (high - low) / 2 / median(xs)


def hardware() -> str:
    device = jax.devices()[0]
    kind = device.device_kind if device.platform != "cpu" else f"{platform.machine()} CPU, {jax.device_count()} device"
    return f"{kind}; Python {platform.python_version()}, jax {jax.__version__}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
