"""The modified equation of any optimizer with `init` and `update`, of shuffled batches, and of two-player games."""

from igr.optimizers.batches import GradientTerms as GradientTerms
from igr.optimizers.batches import batch_gradient_terms as batch_gradient_terms
from igr.optimizers.batches import batch_modified_loss as batch_modified_loss
from igr.optimizers.batches import epoch_field as epoch_field
from igr.optimizers.field import ModifiedField as ModifiedField
from igr.optimizers.field import Terms as Terms
from igr.optimizers.field import modified_field as modified_field
from igr.optimizers.games import game_field as game_field
from igr.optimizers.games import game_step as game_step
from igr.optimizers.rate import Rate as Rate
from igr.optimizers.rate import modified_rate as modified_rate
from igr.optimizers.steps import settle as settle
from igr.optimizers.steps import step as step
