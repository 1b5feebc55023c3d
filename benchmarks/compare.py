"""Ratios of two versions of a benchmark, from the JSON files that `sweep.py` and `resnet.py` write.

    python benchmarks/compare.py --before b1.json b2.json b3.json --after a1.json a2.json a3.json

Run the versions in turns on one machine. For each case both have: the median time of each version, their ratio, and the
spread between the runs of one version, below which a ratio says nothing.
"""

import argparse
import json
import statistics


def times(files: list[str]) -> dict[str, list[float]]:
    """The times of each case, one for each file."""
    found: dict[str, list[float]] = {}
    for name in files:
        with open(name) as file:
            for row in json.load(file)["rows"]:
                found.setdefault(row["case"], []).append(row.get("us", row.get("seconds")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", nargs="+", required=True)
    parser.add_argument("--after", nargs="+", required=True)
    args = parser.parse_args()
    before, after = times(args.before), times(args.after)
    print("| case | before | after | after / before | spread | n |\n| --- | --- | --- | --- | --- | --- |")
    for case in before:
        if case in after:
            a, b = statistics.median(before[case]), statistics.median(after[case])
            spread = max((max(x) - min(x)) / statistics.median(x) for x in (before[case], after[case]))
            print(f"| {case} | {a:.4g} | {b:.4g} | {b / a:.3f} | {spread:.3f} | {len(before[case])} |")


if __name__ == "__main__":
    main()
