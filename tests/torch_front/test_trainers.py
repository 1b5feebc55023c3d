"""The penalty in Lightning and in Hugging Face's Trainer gives the parameters of a loop written by hand."""

import warnings

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import torch
from torch.nn import functional as F
from torch_models import Mlp

import igr.torch

RATE, MU, RADIUS = 0.5, 0.4, 0.1


def data():
    torch.manual_seed(3)
    return torch.randn(16, 6), torch.arange(16) % 4


def by_hand(mu, accumulated, batch=4):
    """SGD over batches of four, each penalized by itself."""
    torch.manual_seed(0)
    model, losses = Mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x, y = data()
    for i in range(0, 16, batch):
        if i // batch % accumulated == 0:
            optimizer.zero_grad()
        part = slice(i, i + batch)
        value, _ = igr.torch.backward(
            model, lambda part=part: F.cross_entropy(model(x[part]), y[part]), mu, radius=RADIUS, scale=1 / accumulated
        )
        losses.append(float(value))
        if i // batch % accumulated == accumulated - 1:
            optimizer.step()
    return model, losses


def assert_same(ours, theirs, other):
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    largest = max((a - b).abs().max().item() for a, b in zip(ours.parameters(), other.parameters(), strict=True))
    assert largest > 1e-4, "the penalty has an effect to be seen"


def fit(module, loader, folder, **options):
    """Train for one epoch with Lightning, which leaves nothing behind and says nothing."""
    import lightning.pytorch as pl

    quiet = dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "logger"), False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", default_root_dir=folder, **quiet, **options)
        trainer.fit(module, loader)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_lightning(tmp_path, accumulated):
    pytest.importorskip("lightning", reason="no tests of the Lightning callback: lightning is not installed")
    import lightning.pytorch as pl

    from igr.torch.lightning import PenaltyCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net, self.logged = Mlp(), []

        def training_step(self, batch, batch_idx):
            x, y = batch
            loss = F.cross_entropy(self.net(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=RATE)

        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.logged.append(self.trainer.callback_metrics["loss"].item())

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), batch_size=4)
    module, callback = Module(), PenaltyCallback(MU, radius=RADIUS)
    fit(module, loader, tmp_path, callbacks=[callback], accumulate_grad_batches=accumulated)
    model, losses = by_hand(MU, accumulated)
    assert_same(module.net, model, by_hand(0.0, accumulated)[0])
    assert module.logged == pytest.approx(losses, rel=1e-5), "the loss of the unperturbed pass is logged"
    assert callback.state_dict() == {"step": 4}
    assert float(callback.penalty.norm2) > 0


def test_lightning_with_an_optimizer_of_several_gradients_is_one_sentence(tmp_path):
    pytest.importorskip("lightning", reason="no tests of the Lightning callback: lightning is not installed")
    import lightning.pytorch as pl

    from igr.torch.lightning import PenaltyCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Mlp()

        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), max_iter=3)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), batch_size=4)
    with pytest.raises(ValueError, match="only the first would be penalized"):
        fit(Module(), loader, tmp_path, callbacks=[PenaltyCallback(MU, radius=RADIUS)])


def test_hugging_face(tmp_path):
    accumulated = 2
    pytest.importorskip("transformers", reason="no tests of the Trainer mixin: transformers is not installed")
    pytest.importorskip("accelerate", reason="no tests of the Trainer mixin: accelerate is not installed")
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from igr.torch.transformers import PenaltyMixin

    class PenalizedTrainer(PenaltyMixin, Trainer):
        penalty = {"mu": MU, "radius": RADIUS}  # noqa: RUF012

    config = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, n_positions=8, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(1)
    tokens = torch.randint(11, (8, 6))
    labels = tokens.clone()
    labels[:, 0] = -100  # predicted by nothing, but the trainer would count it

    def model():
        torch.manual_seed(0)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        return GPT2LMHeadModel(config)

    def trained(mu):
        ours = model()
        optimizer = torch.optim.SGD(ours.parameters(), lr=RATE)
        for i in range(0, 8, 2):
            part, wanted = tokens[i : i + 2], labels[i : i + 2]
            if i // 2 % accumulated == 0:
                optimizer.zero_grad()
            igr.torch.backward(
                ours,
                lambda part=part, wanted=wanted: ours(input_ids=part, labels=wanted).loss,
                mu,
                radius=RADIUS,
                scale=1 / accumulated,
            )
            if i // 2 % accumulated == accumulated - 1:
                optimizer.step()
        return ours

    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulated,
        num_train_epochs=1,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        optim="sgd",
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    theirs = model()
    dataset = [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = PenalizedTrainer(model=theirs, args=arguments, train_dataset=dataset)
        trainer.get_train_dataloader = lambda: torch.utils.data.DataLoader(dataset, batch_size=2)
        trainer.train()
    assert_same(theirs, trained(MU), trained(0.0))


def test_hugging_face_resumes_the_count_of_steps(tmp_path):
    pytest.importorskip("transformers", reason="no tests of the Trainer mixin: transformers is not installed")
    pytest.importorskip("accelerate", reason="no tests of the Trainer mixin: accelerate is not installed")
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from igr.torch.transformers import PenaltyMixin

    steps = []

    class PenalizedTrainer(PenaltyMixin, Trainer):
        penalty = {"mu": lambda step: steps.append(step) or 0.1}  # noqa: RUF012

    tokens = torch.arange(48).view(8, 6) % 11
    for checkpoint, wanted in ((None, [0, 1, 2, 3]), (str(tmp_path / "checkpoint-1"), [2, 3])):
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            num_train_epochs=1,
            report_to=[],
            use_cpu=True,
            save_steps=1,
            disable_tqdm=True,
        )
        config = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, n_positions=8, bos_token_id=0, eos_token_id=0)
        steps.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            PenalizedTrainer(
                model=GPT2LMHeadModel(config),
                args=arguments,
                train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
            ).train(resume_from_checkpoint=checkpoint)
        assert steps == wanted
