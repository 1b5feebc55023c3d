"""The penalty, R_IG and the monitor for PyTorch: `pip install '.[torch]'` in a clone.

The same mathematics and the same words as in `igr`, for `torch.nn.Module`s in training loops as they are. No tensor
passes through JAX.
"""

# pyright: reportMissingImports=false
from igr.torch.curvature import sharpness as sharpness
from igr.torch.functional import value_and_grad as value_and_grad
from igr.torch.monitoring import Monitor as Monitor
from igr.torch.penalty import Penalty as Penalty
from igr.torch.penalty import backward as backward
from igr.torch.quantities import num_params as num_params
from igr.torch.quantities import regularizer as regularizer
from igr.torch.quantities import slope as slope
from igr.torch.regimes import regime as regime
from igr.torch.self_check import penalty_error as penalty_error
