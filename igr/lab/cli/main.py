"""The entry of the `igr` command: signals first, and then everything that takes time to import."""

import os
import sys

from igr.lab.cli import INTERRUPTED


def main() -> None:
    """Run the command line; `igr --version` needs none of it."""
    import _signal  # pyright: ignore[reportMissingImports]  (built in; to import `signal` takes 10 ms and more)

    for number in (_signal.SIGINT, _signal.SIGTERM):  # while the next line is imported
        _signal.signal(number, _interrupted)
    from igr.lab.cli import signals

    reserve()
    signals.install()
    if sys.argv[1:] == ["--version"]:
        import igr

        try:
            print(f"igr {igr.__version__}", flush=True)
        except OSError as error:  # such as a full disk behind the standard output
            print(f"The output cannot be used: {error.strerror}.", file=sys.stderr, flush=True)
            os._exit(2)
        return
    from igr.lab.cli.app import main as run

    run()


def _interrupted(number: int, _: object) -> None:
    """End at once: nothing has begun."""
    try:
        os.write(2, f"{INTERRUPTED}\n".encode())
    finally:
        os._exit(128 + number)


def reserve() -> None:
    """Open what is closed of the three standard streams, as after `>&-`, to nothing.

    The next file that is opened would get the number of the stream, and what a library says would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115 (it stays open)


if __name__ == "__main__":
    main()
