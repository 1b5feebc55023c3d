"""The curves of A.3 (training), A.4 (test) and A.5 (physical time) for one network size, by learning rate."""

from matplotlib.figure import Figure

from igr.lab.plots.curves import (
    FIT,
    LOSS,
    NORM,
    RATIO,
    REGULARIZER,
    SHARE,
    TEST_ACCURACY,
    TEST_LOSS,
    TEST_RATIO,
    TEST_REGULARIZER,
    panels,
)
from igr.lab.store.store import Table


def curve_figures(focused: Table) -> dict[str, Figure]:
    """Figures A.3, A.4 and A.5 of the runs of one width."""
    shape = focused[0].config.shape
    what = f"$n_l$ = {shape.width}, batch {shape.batch_size}"
    return {
        "mlp-A3": panels(focused, [LOSS, REGULARIZER, SHARE, RATIO, NORM, FIT], what),
        "mlp-A4": panels(focused, [TEST_LOSS, TEST_REGULARIZER, TEST_RATIO, TEST_ACCURACY], what),
        "mlp-A5": panels(focused, [LOSS, REGULARIZER, RATIO, SHARE, NORM, TEST_ACCURACY], what, physical=True),
    }
