"""The code on the page about PyTorch runs, from top to bottom, and that of the README."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import torch
import torch_models  # noqa: F401 (one thread)

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "torch.md"


# Blocks are marked `py`, so that the tests of the other pages, which run without torch, leave them alone.
BLOCKS = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.S)
# These need other packages, or two processes (worker.py).
TRAINERS = {"lightning": "PenaltyCallback", "transformers": "PenaltyMixin"}
ELSEWHERE = [*TRAINERS.values(), "DistributedDataParallel"]


def run(source):
    names: dict[str, Any] = {}
    exec(compile(source, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize("package", TRAINERS)
def test_the_trainers_of_the_page_run(package, tmp_path, monkeypatch):
    pytest.importorskip(package, reason=f"no test of the page about {package}: it is not installed")
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in BLOCKS if TRAINERS[package] in block]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        trainer = run(BLOCKS[0] + block)["trainer"]
    penalty = trainer.callbacks[0].penalty if package == "lightning" else trainer._penalty
    assert penalty.step == {"lightning": 8, "transformers": 4}[package]
    assert penalty.mu(penalty.step) == 0.01
    assert float(penalty.norm2) > 0


def test_the_page_runs(capsys):
    names = run("\n".join(block for block in BLOCKS if not any(name in block for name in ELSEWHERE)))
    assert len(BLOCKS) == 13
    assert {"slope", "r_ig", "signal", "h_lambda"} <= set(names["readings"])
    assert names["now"].h_lambda == pytest.approx(0.1 * names["curvature"].value, rel=0.05)
    assert "default of forward" in capsys.readouterr().out
    assert torch.isfinite(names["r_ig"])


@pytest.mark.parametrize("page", ["README.md", "docs/first_steps.md"])
def test_the_training_loops_of_other_pages_train(page):
    source = "\n".join(re.findall(r"```py\n(.*?)```", (ROOT / page).read_text(), re.S))
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(compile(source, page, "exec"), names)
    assert names["value"] < (names["y"] ** 2).mean(), "better than no network at all"
    assert names["norm2"] > 0
