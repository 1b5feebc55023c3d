"""What the exceptions of Ray mean for a unit: its process is lost, nothing fits into the store, or no worker can."""

from ray import exceptions

LOST = (  # the process of a unit is gone, and not by its own fault
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.LocalRayletDiedError,
    exceptions.OutOfMemoryError,
    exceptions.ObjectLostError,
    exceptions.RayActorError,
)
FULL = (exceptions.ObjectStoreFullError, exceptions.OutOfDiskError)
FULL_WORDS = (
    "The object store of Ray is full: give its nodes more (`ray start --object-store-memory`), or put --out on a "
    "folder that all nodes share."
)


def unfit(error: Exception) -> str:
    """Why no unit can be computed on these workers, in a sentence; empty where the error is of one unit."""
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return f"The workers' environment cannot be made: {why_of(error)}"
    cause = getattr(error, "cause", None)
    if isinstance(cause, ImportError | AttributeError) or "failed to import on the worker" in str(cause):
        return f"The workers have no igr that fits, or lack a package: {str(cause).strip().splitlines()[-1]}"
    return ""


def why_of(error: Exception) -> str:
    """The reason in a line; Ray's own texts have paragraphs of advice."""
    lines = [line.strip() for line in str(getattr(error, "cause", None) or error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return f"{type(error).__name__}: {text}"[:300]
