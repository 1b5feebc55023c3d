"""Write the numbers of the stored runs into the pages that have marks for them: python docs/results/write.py

The marks are described in `igr.lab.report.pages`. A test fails where a page differs from what this would write.
"""

from pathlib import Path

from igr.lab.report.gather import gather
from igr.lab.report.pages import filled
from igr.lab.store.store import Store

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs" / "results").glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
STORES = {"": ROOT / "results", "quick": ROOT / "results" / "quick"}


def main() -> None:
    """Rewrite what has changed, and say so."""
    results = gather({name: Store(folder) for name, folder in STORES.items()})
    for page in PAGES:
        before = page.read_text()
        after = filled(before, results)
        if after != before:
            page.write_text(after)
            print(f"{page.relative_to(ROOT)} has other numbers now")


if __name__ == "__main__":
    main()
