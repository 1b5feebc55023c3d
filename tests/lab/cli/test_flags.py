"""Every field is a flag, nested ones by their path, and every flag arrives."""

import dataclasses
import json

import pytest

from igr.lab.cli.flags import command_of, split, words
from igr.lab.cli.run import RunOptions
from igr.lab.experiments import load, train
from igr.lab.experiments.mlp import grid as mlp
from igr.lab.experiments.resnet import grid as resnet
from igr.lab.store.config import ConfigError, Scale
from igr.lab.training.config import Schedule, Shape, ShapeChanges
from igr.lab.training.optimizers import Optimizer


def given(options, line):
    """The options that a command line gives."""
    found = []

    def command(**values):
        found.append(split(options, values)[0])

    command_of(command, [options], "test", "claim").main(line.split(), standalone_mode=False)
    return found[0]


LINE = (
    "--data mnist --model mlp --width 100 --steps 7 --optimizer adamw,b2=0.95 --learning-rates 0.1,0.2 --seeds 3,4 "
    "--method forward --mus 0.5 --augment --schedule.every 2 --schedule.epochs 1,3 --noise.sigmas 0.5 "
    "--measure.test no --measure.metrics sharpness"
)


def test_a_training_of_ones_own_from_its_flags():
    options = given(train.Options, LINE)
    assert (options.data, options.width, options.optimizer) == ("mnist", 100, Optimizer("adamw", (("b2", 0.95),)))
    assert options.schedule == Schedule(every=2, epochs=(1, 3))
    assert (options.noise.sigmas, options.measure.test, options.measure.metrics) == ((0.5,), False, ("sharpness",))
    units = train.trials(Scale.QUICK, options)
    assert [(u.learning_rates, u.mus, u.seeds) for u in units] == [((0.1, 0.2, 0.1, 0.2), (0.5,) * 4, (3, 3, 4, 4))]
    assert units[0].shape == Shape(**{f.name: getattr(options, f.name) for f in dataclasses.fields(Shape)})
    radii = given(train.Options, "--method sam --rhos 0.1,0.2")
    assert train.trials(Scale.SMOKE, radii)[0].rhos == (0.1, 0.2)


def test_a_flag_that_is_given_again_adds_to_its_values_and_replaces_none():
    options = given(train.Options, "--seeds 3 --learning-rates 0.1,0.2 --seeds 4,5 --measure.metrics trace --width 6")
    assert (options.seeds, options.learning_rates, options.measure.metrics) == ((3, 4, 5), (0.1, 0.2), ("trace",))
    assert given(train.Options, "--noise.sigmas ,").noise.sigmas == ()
    changed = given(mlp.Options, "--shape.noise.sigmas 0.1 --shape.noise.sigmas 0.2 --seeds 2")
    assert mlp.trials(Scale.SMOKE, changed)[0].shape.noise.sigmas == (0.1, 0.2)
    assert given(RunOptions, "--sink csv --sink tensorboard").sink == ("csv", "tensorboard")


def test_the_words_of_options_give_them_again():
    options = given(train.Options, LINE)
    assert given(train.Options, " ".join(words(options))) == options
    assert words(train.Options()) == []
    changed = given(mlp.Options, "--seeds 2 --shape.optimizer adam --shape.schedule.every 3")
    assert words(changed) == ["--seeds", "2", "--shape.schedule.every", "3", "--shape.optimizer", "adam"]
    assert given(mlp.Options, " ".join(words(changed))) == changed


@pytest.mark.parametrize("grid", [mlp, resnet])
def test_a_change_of_the_shape_reaches_every_network_of_an_experiment(grid):
    options = given(grid.Options, "--shape.optimizer momentum,beta=0.5 --shape.measure.batch 77")
    before, after = grid.trials(Scale.SMOKE), grid.trials(Scale.SMOKE, options)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert new.shape == old.shape.replace(
            optimizer=Optimizer("momentum", (("beta", 0.5),)), measure=old.shape.measure.replace(batch=77)
        )
        assert new.digest() != old.digest()


def test_every_field_of_the_shape_is_a_flag_of_the_experiments(capsys):
    for options, prefix in ((train.Options, "--"), (mlp.Options, "--shape."), (resnet.Options, "--shape.")):
        command = command_of(lambda **_: None, [options], "test", "claim")
        known = {word for parameter in command.params for word in parameter.opts}
        for field in dataclasses.fields(Shape):
            flags = [f"{prefix}{field.name.replace('_', '-')}"]
            inner = {"schedule": "every", "noise": "sigmas", "measure": "images"}
            flags[0] += f".{inner[field.name]}" if field.name in inner else ""
            assert set(flags) <= known


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--schedule.every two", "every must be a whole number, and it is 'two'"),
        ("--optimizer adam,b7=1", "adam has no argument 'b7'"),
        ("--measure.test perhaps", "test must be yes or no, and it is 'perhaps'"),
        ("--seeds -1", "a seed must lie in"),
    ],
)
def test_a_bad_value_is_one_sentence(line, message):
    with pytest.raises(ConfigError, match=message):
        train.trials(Scale.SMOKE, given(train.Options, line))


def test_changes_know_their_fields():
    with pytest.raises(ConfigError, match="Shape has no field 'breadth'"):
        ShapeChanges((("breadth", "3"),))
    with pytest.raises(ConfigError, match="width and steps must be positive"):
        ShapeChanges((("width", "0"),)).of(Shape())
    together = ShapeChanges((("every", "2"), ("method", "exact")))  # neither is possible without the other
    assert together.of(Shape()) == Shape(method="exact", every=2)


def test_the_options_of_an_experiment_are_stored_as_json():
    json.dumps(given(mlp.Options, "--shape.width 3").to_dict())
    assert load("train").Options is train.Options
