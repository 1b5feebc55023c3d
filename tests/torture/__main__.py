"""`make torture`: kills, signals, flipped bits, hostile files, full disks, several processes, bad mirrors; seed fixed.

Every line of the table it prints counts attempts, results that were lost or changed, damaged bytes that were read as
data (or shown to the terminal as they are), and errors that are not ours. All but the first must be zero, and the exit
code says so. Most processes are forked from one that has everything imported, so that hundreds of them take minutes,
and their units are small and of plain NumPy; `commands` starts the `igr` command itself. Names given as arguments are
the parts to do, such as `killed forged`.
"""

import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax
from torture import commands, forged, killed, outside

SEED = 2009_11162
PARTS = ("killed", "forged", "outside", "commands", "stores")
COLUMNS = ("attempts", "lost or changed", "read as data", "errors not ours")


def main(parts: list[str]) -> int:
    """Run everything and print the table; 1 where a promise was broken."""
    warnings.simplefilter("ignore")
    os.environ.pop("IGR_DATA_DIR", None)
    draw, begun = random.Random(SEED), time.monotonic()
    jax.devices()
    root = Path(tempfile.mkdtemp(prefix="igr-torture-"))
    killing, forging, beside, commanding, strange = (root / name for name in PARTS)  # what one leaves no other finds
    for place in (killing, forging, beside, commanding, strange):
        place.mkdir()
    known = {
        "killed": (killed.operations(killing), killed.moments(killing, draw), killed.crowds(killing, draw)),
        "forged": (forged.harmed(forging, draw), forged.strangers(forging, draw)),
        "outside": (outside.disks(beside), outside.mirrors(beside), outside.diverging()),
        "commands": (commands.signalled(commanding, draw),),
        "stores": (commands.strange_stores(strange, draw),),
    }
    print(f"| what happens | {' | '.join(COLUMNS)} |\n| --- | --: | --: | --: | --: |", flush=True)
    broken = 0
    try:
        for lines in (lines for part in parts or PARTS for lines in known[part]):
            for words, tally in lines:
                print(f"| {words} | {' | '.join(f'{tally[name]:,}' for name in COLUMNS)} |", flush=True)
                broken += sum(tally[name] for name in COLUMNS[1:])
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"\nSeed {SEED}, {time.monotonic() - begun:.0f} s on {jax.devices()[0].device_kind}, {os.cpu_count()} cores.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
