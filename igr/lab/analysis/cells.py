"""Text that a spreadsheet shows as it stands: no cell of an exported table is taken for a formula."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def harmless(cell: Any) -> Any:
    """The cell, with an apostrophe before text that a spreadsheet would compute; numbers stay as they are.

    >>> harmless("=1+1"), harmless("-0.5"), harmless(-0.5), harmless("tanh")
    ("'=1+1", '-0.5', -0.5, 'tanh')
    """
    if not isinstance(cell, str) or not cell.startswith(FORMULAS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def to_csv(table: "pandas.DataFrame") -> str:
    """A data frame as CSV with harmless names and texts."""
    safe = table.rename(columns=harmless)
    for place, kind in enumerate(safe.dtypes):
        if kind.kind not in "biufc":
            safe.isetitem(place, [harmless(cell) for cell in safe.iloc[:, place]])
    return safe.to_csv(index=False, lineterminator="\n")
