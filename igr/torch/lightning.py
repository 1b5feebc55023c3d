"""The penalty in Lightning: a callback for modules with automatic optimization. Needs the package lightning."""

# pyright: reportMissingImports=false
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
from torch import Tensor

from igr.torch.penalty import Penalty


class PenaltyCallback(pl.Callback):
    r"""A callback that penalizes the gradient of every batch: `Trainer(callbacks=[PenaltyCallback(mu=0.01)])`.

    The arguments are those of `igr.torch.Penalty` besides the model; steps are batches. It runs `training_step` a
    second time after the first backward pass, without logging. With `accumulate_grad_batches` each batch is penalized
    by itself (`penalize="each"`). `penalty.norm2` is $|\nabla E|^2$ at the last batch.
    """

    def __init__(self, mu: Any, every: int = 1, warm_up: int = 0, **options: Any):
        self.options = {"mu": mu, "every": every, "warm_up": warm_up, **options}
        self.penalty: Penalty | None = None
        self._resumed: dict[str, int] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look at the training once."""
        if not pl_module.automatic_optimization:
            raise ValueError("PenaltyCallback needs automatic optimization: call igr.torch.backward in training_step.")
        model = trainer.strategy.model if trainer.strategy.model is not None else pl_module
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        scale = 1 / trainer.accumulate_grad_batches
        self.penalty = Penalty(model, **self.options, scale=scale, scaler=scaler)
        if self._resumed:
            self.penalty.load_state_dict(self._resumed)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Open the first pass, before anything is drawn at random."""
        self._batch = batch, batch_idx
        if batch_idx % trainer.accumulate_grad_batches == 0:
            pl_module.zero_grad()  # Lightning does so too, but after its forward pass
        self._passes, self._open = self._require().passes(), True
        next(self._passes)

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Run the other passes."""
        penalty = self._require()
        if not self._open:
            raise ValueError(
                "the optimizer takes several gradients of one batch, as LBFGS does, and only the first would be "
                "penalized: use manual optimization, with igr.torch.backward in the closure."
            )
        self._open = False
        for _ in self._passes:
            with _silent(pl_module):
                output = trainer.strategy.training_step(*self._batch)
            loss: Tensor = output if isinstance(output, Tensor) else output["loss"]  # pyright: ignore[reportOptionalSubscript]
            loss = loss * penalty.scale
            (loss if penalty.scaler is None else penalty.scaler.scale(loss)).backward()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Restore the parameters if a pass did not end."""
        if hasattr(self, "_passes"):
            self._passes.close()  # pyright: ignore[reportAttributeAccessIssue] (a generator)

    def state_dict(self) -> dict[str, int]:
        """The step, for the checkpoint."""
        return self.penalty.state_dict() if self.penalty else {}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from a checkpoint."""
        self._resumed = state_dict

    def _require(self) -> Penalty:
        if self.penalty is None:
            raise RuntimeError("PenaltyCallback is used before the training has started.")
        return self.penalty


@contextmanager
def _silent(module: pl.LightningModule) -> Iterator[None]:
    """Without logging: a perturbed pass says nothing about the loss."""
    module.log = module.log_dict = lambda *_, **__: None  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del module.log, module.log_dict
