"""The models by name. A new one is a file beside this one, with an `ENTRY`, and a line in `MODELS`."""

from igr.lab.models import mlp, resnet18
from igr.lab.models.model import ModelEntry

MODELS: dict[str, ModelEntry] = {
    "mlp": mlp.ENTRY,
    "resnet18": resnet18.ENTRY,
}
