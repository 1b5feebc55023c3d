import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from igr.lab.store.config import Config, ConfigError, Scale, option


@dataclasses.dataclass(frozen=True)
class Inner(Config):
    depth: int = 5


@dataclasses.dataclass(frozen=True)
class Sample(Config):
    learning_rate: float = 0.1
    seed: int = 0
    name: str = "mlp"
    widths: tuple[int, ...] = (50, 100)
    start: tuple[float, float] = (1.0, 2.0)
    limit: float | None = None
    scale: Scale = Scale.QUICK
    inner: Inner = Inner()
    full_batch: bool = False

    def check(self) -> None:
        if self.learning_rate <= 0:
            raise ConfigError(f"learning_rate must be positive, and it is {self.learning_rate}.")


@dataclasses.dataclass(frozen=True)
class Twin(Config):
    seed: int = 0
    learning_rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Other(Twin):
    pass


def test_json_round_trip_restores_every_type():
    config = Sample(0.5, 3, widths=(7,), limit=1e-3, scale=Scale.PAPER, inner=Inner(2), full_batch=True)
    again = Config.from_json(config.to_json())
    assert again == config
    assert isinstance(again.scale, Scale)
    assert isinstance(again.inner, Inner)
    assert isinstance(again.widths, tuple)


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.2},
        {"seed": 1},
        {"name": "resnet"},
        {"widths": (50,)},
        {"start": (2.0, 1.0)},
        {"limit": 1.0},
        {"scale": "smoke"},
        {"inner": Inner(4)},
        {"full_batch": True},
    ],
)
def test_each_field_changes_the_hash(change):
    assert Sample().replace(**change).digest() != Sample().digest()


def test_equal_meanings_have_equal_hashes():
    plain = Sample(1.0, 2, widths=(3, 4))
    assert Sample(1, np.int64(2), widths=[3, np.int32(4)]).digest() == plain.digest()
    assert Sample(np.float64(1.0), 2, widths=np.array([3, 4])).digest() == plain.digest()
    assert Sample(start=(0.0, 1)).digest() == Sample(start=(-0.0, 1.0)).digest()


def test_hash_does_not_depend_on_the_order_of_fields_but_on_the_kind():
    same_name = dataclasses.make_dataclass(
        "Twin", [("learning_rate", float, 0.1), ("seed", int, 0)], bases=(Config,), frozen=True
    )
    assert same_name().digest() == Twin().digest()
    assert Other().digest() != Twin().digest()


@dataclasses.dataclass(frozen=True)
class Outer(Config):
    twin: Twin = Twin()


def test_a_later_field_leaves_the_names_of_stored_runs_alone():
    later = [
        ("learning_rate", float, 0.1),
        ("seed", int, 0),
        ("momentum", float, option("", 0.0, later=True)),
        ("inner", Inner, option("", default_factory=Inner, later=True)),
    ]
    grown = dataclasses.make_dataclass("Twin", later, bases=(Config,), frozen=True)
    outer = dataclasses.make_dataclass("Outer", [("twin", grown, grown())], bases=(Config,), frozen=True)
    assert grown().digest() == Twin().digest()
    assert outer().digest() == Outer().digest(), "also inside another one"
    assert outer().to_dict()["twin"] == {"learning_rate": 0.1, "seed": 0, "momentum": 0.0, "inner": {"depth": 5}}
    changed = [Twin(), grown(momentum=0.9), grown(inner=Inner(4)), grown(momentum=0.9, inner=Inner(4))]
    assert len({each.digest() for each in changed}) == len({outer(each).digest() for each in changed[1:]}) + 1 == 4


def test_hash_is_the_same_in_another_process():
    code = (
        "from igr.lab.experiments.two_parameter.model import Descent;"
        "print(Descent((2.8, 3.5), learning_rate=0.1 + 0.2, mu=1e-7).digest())"
    )
    from igr.lab.experiments.two_parameter.model import Descent

    command = [sys.executable, "-c", code]
    other = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    assert other.stdout.strip() == Descent((2.8, 3.5), learning_rate=0.1 + 0.2, mu=1e-7).digest()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"learning_rate": -1}, "learning_rate must be positive, and it is -1.0."),
        ({"learning_rate": float("nan")}, "learning_rate must be finite, and it is nan."),
        ({"learning_rate": "big"}, "learning_rate must be a number, and it is 'big'."),
        ({"seed": 1.5}, "seed must be a whole number, and it is 1.5."),
        ({"seed": True}, "seed must be a whole number, and it is True."),
        ({"start": (1.0,)}, "start must have 2 values, and it has 1."),
        ({"widths": 5}, "widths must be a sequence, and it is 5."),
        ({"scale": "huge"}, "scale must be one of smoke, quick, paper, and it is 'huge'."),
    ],
)
def test_bad_values_are_one_sentence(values, sentence):
    with pytest.raises(ConfigError) as caught:
        Sample(**values)
    assert str(caught.value) == sentence


def test_unknown_fields_and_kinds_are_refused():
    with pytest.raises(ConfigError, match="has no field 'momentum'"):
        Sample.from_dict({"momentum": 0.9})
    with pytest.raises(ConfigError, match=r"No configuration of kind 'igr\.none:Nothing' .* import the module"):
        Config.from_json('{"kind": "igr.none:Nothing"}')


def test_configurations_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sample().seed = 3  # pyright: ignore[reportAttributeAccessIssue]
