"""What a Ray worker runs, and the mailbox between workers and driver.

Only the standard library is imported here: a worker compares versions before it imports the rest, and its environment
(visible devices, memory, threads) is complete before JAX is imported.
"""

import asyncio
import functools
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

MATTER = ("jax", "jaxlib", "numpy", "diffrax", "optax")  # packages that decide a result


@functools.cache
def versions() -> dict[str, str]:
    """What driver and workers must agree in."""
    import igr

    found = {"igr": igr.__version__, "Python": ".".join(platform.python_version_tuple()[:2])}
    for name in MATTER:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def work(parcel: dict[str, Any], post: Any) -> dict[str, Any]:
    """One attempt at one unit: what became of it, as plain data. See `igr.lab.runs.away` for the parcel."""
    here = versions()
    for name, there in parcel["versions"].items():
        if here[name] != there:
            why = f"The workers have {name} {here[name]}, and this process has {there}: install the same versions."
            return {"how": "mismatch", "why": why}
    from igr.lab.runs import away

    return away.attempt(parcel, post)


class Post:
    """A mailbox: workers leave messages, the driver takes them, and every answer says whether to stop."""

    def __init__(self) -> None:
        self.mail: list[dict[str, Any]] = []
        self.stopping = False

    async def tell(self, message: dict[str, Any]) -> bool:
        """Leave a message. Of the checkpoints of an attempt only the last one is kept."""
        if "checkpoint" in message:
            for earlier in self.mail:
                if earlier["token"] == message["token"]:
                    earlier.pop("checkpoint", None)
        self.mail.append(message)
        return self.stopping

    async def take(self, stop: bool = False) -> list[dict[str, Any]]:
        """All messages since the last call; `stop` asks the workers to stop."""
        self.stopping = self.stopping or stop
        mail, self.mail = self.mail, []
        await asyncio.sleep(0)
        return mail
