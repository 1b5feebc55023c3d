"""The command as a user meets it: in a process of its own, its exit codes and what it prints."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from units import contents

from igr.lab import experiments
from igr.lab.analysis.findings import Verdict, tallied
from igr.lab.cli import app as cli
from igr.lab.experiments import REGISTRY, load, names
from igr.lab.store import files


def igr(*arguments, **options):
    environment = {**os.environ, "COLUMNS": "80", "LINES": "24", **options.pop("env", {})}
    command = [sys.executable, "-m", "igr.lab.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """The command in this process: its exit code and what it printed."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["igr", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, capsys.readouterr()

    return run


# Values that are not the defaults, so that a flag which is parsed and forgotten shows.
RUN = ("run", "two-parameter", "--scale", "smoke", "--rates", "41", "--stop-loss", "1e-11", "--jobs", "2")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def ran(out):
    return igr(*RUN, "--out", str(out), "--json")


def test_help_fits_a_screen_and_shows_an_example():
    result = igr("--help")
    assert result.returncode == 0
    lines = result.stdout.rstrip().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "igr run two-parameter" in result.stdout
    commands = re.findall(r"^  ([a-z]+)  ", result.stdout, re.MULTILINE)
    assert commands == ["list", "run", "report", "reproduce", "explore", "export", "data", "verify", "gc"]


def test_help_of_run_has_every_claim_to_its_end(call):
    shown = " ".join(call("run", "--help")[1].out.split())
    assert [name for name in REGISTRY if load(name).CLAIM not in shown] == []


def test_run_prints_json_alone_on_its_output(ran):
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["scale"] == "smoke"
    assert len(found["findings"]) >= 20
    assert "20 computed, 0 already there." in ran.stderr


def test_run_again_computes_nothing_and_report_draws(ran, out, call):
    again = igr(*RUN, "--out", str(out))
    assert "0 computed, 20 already there." in again.stderr
    assert "verdict" in again.stdout
    assert "\x1b[" not in again.stdout + again.stderr, "no colours where there is no terminal"
    code, shown = call("report", "--out", str(out), "--alone")
    assert code == 0
    assert ".pdf" not in shown.out
    code, shown = call("report", "--out", str(out), "--alone", "--full")
    assert code == 0
    for name in ("1a", "1b", "A1", "A2", "phases"):
        assert str(out / "figures" / f"two-parameter-{name}.pdf") in shown.out
        assert (out / "figures" / f"two-parameter-{name}.png").exists()


def test_flags_come_from_the_options_and_reach_the_run(ran, out, call):
    shown = call("run", "two-parameter", "--help")[1].out
    for flag in ("--scale", "--out", "--jobs", "--json", "--stop-loss", "--rates"):
        assert flag in shown
    configs = [json.loads(path.read_text())["config"] for path in out.glob("two-parameter/*/config.json")]
    assert {config["stop_loss"] for config in configs} == {1e-11}
    assert 41 in {config.get("count") for config in configs}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "two-paramter"], "There is no experiment 'two-paramter'; did you mean 'two-parameter'?"),
        (["run", "two-parameter", "--scale", "huge"], "'huge' is not one of"),
        (["run", "two-parameter", "--jobs", "0"], "jobs must be at least 1, and it is 0."),
        (["run", "two-parameter", "--stop-loss", "0"], "stop_loss must lie between 1e-28 and 1, and it is 0.0."),
        (["run", "two-parameter", "--colour"], "No such option"),
        (["run", "two-parameter", "--out", "/dev/null/x"], "Could not write"),
        (["report", "--out", "nowhere"], "There are no stored runs in nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, sentence, call):
    code, shown = call(*arguments)
    assert code == 2
    assert sentence in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_a_failed_run_is_exit_code_1(monkeypatch, call):
    from igr.lab.experiments.two_parameter.scans import PenaltyScan

    def fail(self, session):
        raise FloatingPointError("it went wrong")

    monkeypatch.setattr(PenaltyScan, "compute", fail)
    code, shown = call("run", "two-parameter", "--scale", "smoke")
    assert code == 1
    assert "19 computed, 0 already there, 1 failed." in shown.err
    assert "FloatingPointError: it went wrong" in shown.err
    assert "not testable" in shown.out


def test_interrupt_says_how_to_resume(tmp_path):
    """Ctrl-C while it computes; the stored units are kept and the next call goes on."""
    command = [sys.executable, "-m", "igr.lab.cli", "run", "two-parameter", "--scale", "paper", "--rates", "200000",
               "--out", str(tmp_path)]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240

    def there(name):
        return len(list(tmp_path.glob(f"two-parameter/*/{name}")))

    while (there("SHA256SUMS"), there("checkpoint.bin")) < (18, 1) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command to resume" in errors
    assert "Traceback" not in errors
    assert len(list(tmp_path.glob("two-parameter/*/SHA256SUMS"))) == 18


def test_an_interrupt_between_units_is_not_silent(monkeypatch, call):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "say_beforehand", interrupted)
    code, shown = call("reproduce", "--scale", "smoke")
    assert code == 130
    assert shown.err.strip() == "Interrupted. Finished units are kept; run the same command to resume."


def test_damage_is_named_on_the_screen_and_mended(out, ran):
    victim = sorted(out.glob("two-parameter/*/metrics.npz"))[0]
    good = victim.read_bytes()
    victim.write_bytes(good[:50])
    result = igr(*RUN, "--out", str(out))
    assert result.returncode == 0
    assert f"{victim} is damaged" in result.stderr
    assert "1 computed, 19 already there." in result.stderr
    assert victim.read_bytes() == good


def test_measurements_that_cannot_be_read_are_named_and_nothing_is_said_of_findings(out, ran, call, monkeypatch):
    """The quick look of `igr run` does not open them; what it prints at its end needs them."""
    real = os.open

    def failing(path, *arguments, **options):
        if str(path).endswith("metrics.npz"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, *arguments, **options)

    before = contents(out / "two-parameter")
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", failing)
        code, shown = call(*RUN, "--out", str(out))
    assert code == 1
    assert shown.err.count("metrics.npz: Input/output error. Nothing was changed.") == 20
    assert "findings" not in shown.out
    assert contents(out / "two-parameter") == before


def test_reproduce_runs_the_registry_and_ends_with_verdicts_and_the_page(monkeypatch, call):
    for module in (cli, experiments):
        monkeypatch.setattr(module, "REGISTRY", {"two-parameter": REGISTRY["two-parameter"]})
    code, shown = call("reproduce", "--scale", "smoke", "--out", "here")
    assert code == 0
    assert "two-parameter: 20 of 20 units left, about" in shown.err
    assert "drawing the figures ..." in shown.err
    assert "the repository's runs beside" in shown.out
    assert shown.out.rstrip().endswith("here/index.html")
    assert Path("here/figures/two-parameter-1a.png").exists()
    assert "== two-parameter: 20 units at scale smoke ==" in shown.err.splitlines()
    assert re.search(r"^\[\d+ s, 100%\] computed: ", shown.err, re.MULTILINE)
    (written,) = json.loads(Path("here/findings.json").read_text())
    verdicts = [Verdict(each["verdict"]) for each in written["findings"]]
    assert f"{len(verdicts)} findings here: {tallied(verdicts)}." in " ".join(shown.out.split())
    assert "igr report --full --out here" in shown.out
    drawn = Path("here/figures/two-parameter-1a.png").stat().st_mtime_ns
    code, shown = call("reproduce", "--scale", "smoke", "--out", "here")
    assert "two-parameter: all 20 units are stored" in shown.err
    assert "0 computed, 20 already there." in shown.err
    assert "drawing" not in shown.err
    assert "[" not in shown.err, "units that are skipped have nothing to say"
    assert Path("here/figures/two-parameter-1a.png").stat().st_mtime_ns == drawn


def test_missing_data_say_what_to_do_before_anything_is_computed(call, tmp_path):
    (tmp_path / "empty").mkdir()
    code, shown = call("run", "mlp", "--scale", "paper", "--data-dir", "empty", "--out", "here")
    assert code == 2
    assert "is missing: put it there, or leave out --data-dir" in shown.err
    assert "units left" in shown.err
    assert not list(Path("here").glob("mlp/*/config.json"))


def test_list_names_every_experiment(call):
    code, shown = call("list", "--json")
    assert code == 0
    assert set(json.loads(shown.out)) == set(names())


def test_without_the_laboratory_installed_it_says_what_to_install(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(\"No module named 'typer'\", name='typer')")
    result = igr("list", env={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 2
    assert result.stderr.strip() == "The igr command needs typer: install the laboratory with `pip install 'igr[lab]'`."
