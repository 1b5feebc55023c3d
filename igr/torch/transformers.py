"""The penalty in Hugging Face's `Trainer`: put `PenaltyMixin` before it. Needs the package transformers."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from typing import Any

from torch import Tensor

from igr.torch.penalty import Penalty


class PenaltyMixin:
    """A mixin for `transformers.Trainer` that penalizes the gradient of every micro-batch.

        class PenalizedTrainer(PenaltyMixin, Trainer):
            penalty = {"mu": 0.01, "warm_up": 500}

    `penalty` has the arguments of `igr.torch.Penalty` besides the model; steps are micro-batches. With
    `gradient_accumulation_steps` each micro-batch is penalized by itself (`penalize="each"`). The loss that is logged
    is the unperturbed one. Not for DeepSpeed and Megatron, whose gradients are not in `.grad`.
    """

    penalty: dict[str, Any]

    def training_step(self, model: Any, *args: object, **kwargs: object) -> Tensor:
        """Run the trainer's own step as often as the penalty needs it."""
        counter = self.__dict__.get("_penalty")
        if counter is None or counter.model is not model:
            counter = self._penalty = Penalty(model, **self.penalty, scaler=self.accelerator.scaler)
            counter.step = self.state.global_step * self.args.gradient_accumulation_steps  # as of a checkpoint
        # Fewer at the end of an epoch. With labels of unequal numbers the trainer weighs micro-batches by these.
        counter.scale = 1 / self.current_gradient_accumulation_steps
        losses = [super(PenaltyMixin, self).training_step(model, *args, **kwargs) for _ in counter]
        return losses[0]
