"""The options of `fit` and `plan`: the same ones, seen by a type checker, and misspelt ones named."""

import inspect
import os
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import livi
from livi.inference import fit as fit_function
from livi.inference import map_fits
from livi.inference.capture import Stepper
from livi.inference.options import PlanOptions
from livi.inference.planning import plan as plan_function
from livi.rivals import fit_ensemble, fit_langevin, fit_map, fit_mean_field, fit_swag

ROOT = Path(__file__).resolve().parents[1]
QUICK = livi.Recipe(steps=10, map_steps=10, map_restarts=1, num_samples=4)
DATA = torch.linspace(-1, 1, 8)[:, None], torch.linspace(-1, 1, 8)


def test_the_options_of_fit_are_those_of_plan_and_of_the_same_types():
    parameters = inspect.signature(plan_function).parameters
    own = {"net", "data", "likelihood", "seed"}
    assert PlanOptions.__annotations__.keys() == parameters.keys() - own
    module = sys.modules["livi.inference.planning"]
    planned = typing.get_type_hints(inspect.unwrap(plan_function), vars(module))
    typed = typing.get_type_hints(PlanOptions)
    assert {name: planned[name] for name in typed} == typed


@pytest.mark.parametrize("function", [fit_function, plan_function], ids=["fit", "plan"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stepz", r"got 'stepz'; did you mean 'steps'\?$"),
        ("num_sample", r"got 'num_sample'; did you mean 'num_samples'\? It is a field of Recipe: pass recipe="),
        (
            "num_samples",
            r"got 'num_samples', which is a field of Recipe: pass recipe=livi\.Recipe\(num_samples=\.\.\.\)",
        ),
        ("zzz", r"expected options among net, .*, got 'zzz'; correct the name"),
    ],
)
def test_an_option_that_there_is_not_is_an_error_that_names_the_nearest(function, name, message):
    with pytest.raises(TypeError, match=f"{function.__name__}: {message}"):
        function(nn.Linear(1, 1), DATA, livi.Gaussian(), **{name: 3})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda *args: fit_map(*args, stepps=4), r"fit_map: got 'stepps'; did you mean 'steps'\?$"),
        (lambda *args: fit_ensemble(*args, member=4), r"fit_ensemble: got 'member'; did you mean 'members'\?$"),
        (lambda *args: fit_swag(*args, priors=None), r"fit_swag: got 'priors'; did you mean 'prior'\?$"),
        (lambda *args: fit_map(*args, map_steps=4), r"fit_map: got 'map_steps', which is a field of Recipe: pass"),
    ],
)
def test_misspelt_options_of_rivals_and_recipes_are_named_too(call, message):
    with pytest.raises(TypeError, match=message):
        call(nn.Linear(1, 1), DATA, livi.Gaussian())
    with pytest.raises(TypeError, match=r"Recipe: got 'stepz'; did you mean 'steps'\?$"):
        livi.Recipe(stepz=3)


def test_options_of_fit_alone_are_suggested_too():
    with pytest.raises(TypeError, match=r"got 'callback'; did you mean 'callbacks'\?"):
        livi.fit(nn.Linear(1, 1), DATA, livi.Gaussian(), callback=[])


@pytest.mark.parametrize("function", [fit_map, fit_ensemble])
def test_map_fits_refuse_what_they_have_no_use_for(function):
    posterior = function(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=QUICK, progress=False, callbacks=())
    assert torch.isfinite(posterior.predict(DATA[0]).mean).all()
    for option in ({"validation": DATA}, {"callbacks": [print]}, {"validate_every": 10}):
        with pytest.raises(TypeError, match=f"expected no {next(iter(option))}"):
            function(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=QUICK, **option)


@pytest.mark.parametrize("function", [fit_map, fit_ensemble, fit_swag, fit_langevin])
def test_map_fits_sample_their_last_layer_like_all_others(function):
    for asked in ("exact", "conditional", "exact if possible"):
        with pytest.raises(TypeError, match=f"{function.__name__}: expected no last_layer"):
            function(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=QUICK, last_layer=asked)
    one = fit_map(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=QUICK, last_layer="sampled")
    assert torch.isfinite(one.sampler.theta).all()


@pytest.mark.parametrize("function", [fit_map, fit_ensemble])
def test_map_fits_are_recorded_where_they_are_told_to(function, monkeypatch):
    asked = []

    class Asked(Stepper):
        def __init__(self, *args, capture):
            asked.append(capture)
            super().__init__(*args, capture=capture)

    monkeypatch.setattr(map_fits, "Stepper", Asked)
    for capture in (False, None):
        function(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=QUICK, capture=capture)
    assert asked == [False, None]


def test_mean_field_fits_take_validation_and_callbacks():
    rows = []
    options = {"recipe": QUICK, "progress": False, "validation": DATA, "callbacks": [rows.append]}
    posterior = fit_mean_field(nn.Linear(1, 1), DATA, livi.Gaussian(), **options)
    assert rows == posterior.history
    assert "validation_nll" in rows[-1]


def test_a_type_checker_sees_wrong_options(tmp_path):
    pytest.importorskip("mypy")
    snippet = tmp_path / "snippet.py"
    snippet.write_text("""
import livi, torch
from torch import nn
net, data = nn.Linear(1, 1), (torch.zeros(3, 1), torch.zeros(3))
livi.fit(net, data, livi.Gaussian(), steps=10, start="net", prior=livi.Normal(2.0), validation=0.1, callbacks=[print])
livi.fit(net, data, livi.Gaussian(), steps="ten")
livi.fit(net, data, livi.Gaussian(), stepz=10)
livi.fit(net, data, livi.Gaussian(), callbacks=livi.EarlyStopping())
livi.plan(net, data, livi.Gaussian(), steps="ten")
livi.fit(net, data, livi.Gaussian()).sampel(3)
""")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", str(snippet)]
    process = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    errors = [line.split(":")[1] for line in process.stdout.splitlines() if ": error:" in line]
    assert errors == ["6", "7", "8", "9", "10"], process.stdout + process.stderr
    assert 'Unexpected keyword argument "stepz"' in process.stdout


@pytest.mark.parametrize(
    "call",
    [
        lambda seed: livi.fit(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=QUICK, progress=False, seed=seed),
        lambda seed: livi.plan(nn.Linear(1, 1), DATA, livi.Gaussian(), seed=seed),
        lambda seed: fit_map(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=QUICK, seed=seed),
        lambda seed: livi.fit_density(lambda x: -x.square().sum(1), 1, steps=2, progress=False, seed=seed),
    ],
    ids=["fit", "plan", "fit_map", "fit_density"],
)
def test_a_seed_that_is_no_whole_number_is_named(call):
    for seed, got in (("a", "str 'a'"), (1.5, "float 1.5"), (None, "NoneType None"), (True, "bool True")):
        with pytest.raises(TypeError, match=f"^seed: expected an int, got {got}; pass a number such as 0"):
            call(seed)
    with pytest.raises(ValueError, match=r"^seed: expected -2\*\*63 to 2\*\*63 - 1, got 1180591620717411303424;"):
        call(2**70)


def test_a_seed_of_numpys_is_the_same_seed():
    net = nn.Linear(1, 1)
    one, other = (
        livi.fit(net, DATA, livi.Gaussian(), recipe=QUICK, progress=False, seed=seed).predict(DATA[0]).mean
        for seed in (3, np.int64(3))
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("seed", [2**45, 2**63 - 1, -(2**63)])
def test_every_seed_that_torch_takes_can_be_fitted_with(seed):
    recipe = livi.Recipe(steps=10, map_steps=10, map_restarts=2, num_samples=4)
    posterior = livi.fit(nn.Linear(1, 1), DATA, livi.Gaussian(), recipe=recipe, progress=False, seed=seed)
    assert bool(posterior.predict(DATA[0]).mean.isfinite().all())
