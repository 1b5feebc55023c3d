"""Ctrl-C and SIGTERM at any moment: a checkpoint, one sentence, the exit code, within seconds."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from units import handles_signals

from igr.lab.cli import signals
from igr.lab.store.store import Store

SLOW = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from igr.lab.cli import signals
    signals.install()
    import numpy as np
    from units import Counter
    from igr.lab.runs.local import run_units
    from igr.lab.store.store import Store

    class Slow(Counter):
        def compute(self, session):
            print("working", flush=True)
            for number in range(10_000):
                {body}
                session.save(lambda: {{"step": np.array(number)}})
                session.progress(number / 10_000)

    try:
        with signals.working() as stop:
            run_units(Store(sys.argv[1]), "test", [Slow(1)], save_every=1e9, stop=stop)
    except KeyboardInterrupt:
        print(signals.SENTENCE, file=sys.stderr)
        signals.leave(signals.code())
"""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def start(tmp_path, body="time.sleep(0.01)"):
    here = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    code = textwrap.dedent(SLOW).format(tests=here, body=body)
    command = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    return process


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("number", CODES)
def test_the_first_signal_keeps_a_checkpoint(tmp_path, number, twice):
    """`timeout` sends its signal to the process and then to its group: both together are the first one."""
    process = start(tmp_path, "time.sleep(0.1)")
    time.sleep(0.3)
    process.send_signal(number)
    if twice:
        time.sleep(0.02)  # so that they are two for the system
        process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == CODES[number]
    assert errors.strip() == signals.SENTENCE
    (path,) = Store(tmp_path).root.glob("test/*/checkpoint.bin")
    assert b"step" in path.read_bytes()


def test_a_unit_that_says_nothing_is_ended_after_the_grace(tmp_path):
    process = start(tmp_path, "time.sleep(1000)")
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert errors.strip() == signals.SENTENCE
    assert signals.GRACE - 0.5 < time.monotonic() - begun < 30


def test_a_second_signal_ends_at_once(tmp_path):
    process = start(tmp_path, "time.sleep(1000)")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == signals.SENTENCE
    assert time.monotonic() - begun < signals.GRACE - 0.5


def test_an_exception_that_is_swallowed_does_not_let_the_run_go_on(tmp_path):
    """As in a callback of the garbage collector, where Python prints what is raised and goes on."""
    code = textwrap.dedent("""
        import time
        from igr.lab.cli import signals
        signals.install()
        print("working", flush=True)
        while True:
            try:
                time.sleep(0.01)
            except KeyboardInterrupt:
                pass
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == signals.SENTENCE


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("delay", [0, 0.3, 2.0])
def test_a_signal_while_it_starts_is_a_sentence_and_no_traceback(tmp_path, number, delay):
    """From the first line of ours on; until then Python itself ends, and nothing has begun."""
    command = [sys.executable, "-m", "igr.lab.cli", "run", "two-parameter", "--scale", "paper", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert handles_signals(process)
    time.sleep(delay)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    assert process.returncode == CODES[number]
    assert errors.count(signals.SENTENCE) == 1


@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_the_handlers_themselves_are_imported_is_the_sentence(number):
    code = textwrap.dedent("""
        import builtins, time
        from igr.lab.cli.main import main
        real = builtins.__import__

        def slow(name, globals=None, locals=None, fromlist=(), level=0):
            if "signals" in (fromlist or ()):
                print("working", flush=True)
                time.sleep(60)
            return real(name, globals, locals, fromlist, level)

        builtins.__import__ = slow
        main()
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (CODES[number], signals.SENTENCE)


def test_the_version(tmp_path):
    import igr

    done = subprocess.run([sys.executable, "-m", "igr.lab.cli", "--version"], capture_output=True, text=True)
    assert done.stdout == f"igr {igr.__version__}\n"
    assert done.returncode == 0


@pytest.mark.parametrize("words", ["list", "--version"])
def test_a_full_standard_output_is_a_sentence(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "igr.lab.cli", words], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert re.fullmatch("The output cannot be used: (the disk is full|No space left on device).\n", done.stderr)


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_standard_output_is_no_error_and_no_file_takes_its_place(tmp_path, closed):
    igr = f"{sys.executable} -m igr.lab.cli"
    done = subprocess.run(["sh", "-c", f"{igr} list {closed}"], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    code = f"from igr.lab.cli.main import reserve; reserve(); assert open({str(tmp_path / 'file')!r}, 'w').fileno() > 2"
    done = subprocess.run(["sh", "-c", f'{sys.executable} -c "{code}" {closed}'])
    assert done.returncode == 0


def test_workers_that_are_forked_end_by_signals_and_leave_the_parent_alone(tmp_path):
    """`multiprocessing.Pool` terminates its workers by SIGTERM. They share the pipe of the parent's handlers."""
    code = textwrap.dedent("""
        import multiprocessing, os, signal, time
        from igr.lab.cli import signals
        signals.install()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(abs, [-1, -2]))
        for number in (signal.SIGTERM, signal.SIGINT):
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
            child.start()
            os.kill(child.pid, number)
            child.join(20)
            print(child.exitcode)
        time.sleep(0.3)
        print("done")
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("[1, 2]\n-15\n-2\ndone\n", "", 0)
