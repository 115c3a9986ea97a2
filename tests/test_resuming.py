"""Recipes in part, and fits that go on: from a checkpoint, for longer, after Ctrl-C, or from a trained network."""

import io
import sys
from dataclasses import fields, replace

import pytest
import torch
from torch import nn

import livi
from livi.inference import FitWarning, Recipe, Trainer, begin, map_fits
from livi.inference import loop as loop_module
from livi.inference.progress import FitProgress
from livi.posterior.storage import read_checkpoint

QUICK = Recipe(steps=60, map_steps=60, map_restarts=2, num_samples=8, num_entropy_samples=2)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))  # 16 weights


def data():
    x = torch.linspace(-1, 1, 24)[:, None]
    return x, torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(24, generator=torch.Generator().manual_seed(1))


def quick_fit(**options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "sampled"} | options
    return livi.fit(network(), data(), livi.Gaussian(), **options)


def quick_plan(**options):
    return livi.plan(network(), data(), livi.Gaussian(), **{"recipe": QUICK, "last_layer": "sampled"} | options)


def draws(posterior):
    return posterior.sample(5, torch.Generator().manual_seed(9))


def same(one, other):
    torch.testing.assert_close(draws(one), draws(other), rtol=0, atol=0)


def pressed(monkeypatch, kind, name, count):
    """Ctrl-C as this method is called for the count-th time."""
    method, calls = getattr(kind, name), []

    def press(self, *args):
        calls.append(self)
        if len(calls) == count:
            raise KeyboardInterrupt
        return method(self, *args)

    monkeypatch.setattr(kind, name, press)


def interrupted(monkeypatch, kind, name, count, **options):
    """The posterior of a fit that Ctrl-C ended there."""
    with monkeypatch.context() as patch:
        pressed(patch, kind, name, count)
        with pytest.warns(FitWarning, match="interrupted"):
            return quick_fit(**options)


# --- recipes --------------------------------------------------------------------------------------


def test_a_recipe_names_what_was_said_by_position_or_name():
    assert Recipe().named == frozenset()
    assert Recipe(100, map_rate=1e-3).named == {"steps", "map_rate"}
    assert replace(Recipe(), steps=3).named == {field.name for field in fields(Recipe)}


def test_a_recipe_overrides_only_what_it_names():
    other = Recipe(steps=7, num_samples=32, num_entropy_samples=3, spread=0.5, betas=(0.8, 0.9))
    assert Recipe().over(other) == other
    assert Recipe(map_rate=0.3).over(other) == replace(other, map_rate=0.3)
    assert Recipe(steps=4000).over(other).steps == 4000  # a default that was said
    assert replace(other, steps=9).over(Recipe()) == replace(other, steps=9)


def test_samples_named_alone_take_those_of_the_entropy_along():
    other = Recipe(num_samples=32, num_entropy_samples=4)
    fewer = Recipe(num_samples=2).over(other)
    assert (fewer.num_samples, fewer.num_entropy_samples) == (2, 2)
    more = Recipe(num_entropy_samples=40).over(other)
    assert (more.num_samples, more.num_entropy_samples) == (40, 40)


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_fit_takes_the_rest_of_a_partial_recipe_from_the_rules(last_layer):
    usual = quick_plan(recipe=None, last_layer=last_layer).recipe
    recipe = Recipe(num_samples=2)
    planned = quick_plan(recipe=recipe, last_layer=last_layer).recipe
    assert planned == replace(usual, num_samples=2, num_entropy_samples=2)
    posterior = quick_fit(recipe=recipe, steps=4, last_layer=last_layer)
    assert posterior.plan["recipe"]["num_samples"] == 2
    assert posterior.plan["recipe"]["steps"] == 4


def test_a_longer_recipe_keeps_its_warm_ups_in_steps():
    recipe = Recipe(steps=1000, warm_up=0.1, kl_warm_up=0.3)
    longer = recipe.lengthened(1700).lengthened(4000)
    assert longer.steps == 4000
    assert [longer.kl_weight(step) for step in range(500)] == [recipe.kl_weight(step) for step in range(500)]
    assert [longer.rate_factor(step) for step in range(100)] == [recipe.rate_factor(step) for step in range(100)]
    assert longer.rate_factor(1000) > 0.5
    assert longer.rate_factor(3999) < 1e-4
    assert recipe.lengthened(1000) == recipe


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_brings_its_recipe_along(tmp_path, monkeypatch):
    whole, path = quick_fit(), tmp_path / "c.livi"
    interrupted(monkeypatch, Trainer, "_step", 30, checkpoint=path, checkpoint_every=20)
    resumed = quick_fit(recipe=None, checkpoint=path)
    assert resumed.plan["recipe"] == whole.plan["recipe"]
    same(resumed, whole)


def test_a_finished_fit_goes_on_where_more_steps_are_asked_for(tmp_path):
    path = tmp_path / "c.livi"
    short = quick_fit(checkpoint=path)
    longer = quick_fit(recipe=None, steps=120, checkpoint=path)
    assert [row["step"] for row in longer.history] == [10.0 * i for i in range(1, 13)]
    assert longer.history[:6] == short.history
    assert {row["kl_weight"] for row in longer.history[6:]} == {1.0}
    assert longer.history[6]["rate"] > 10 * short.history[5]["rate"]  # halfway through, not at the end
    assert longer.plan["recipe"]["steps"] == 120
    again = quick_fit(recipe=None, checkpoint=path)
    assert again.history == longer.history
    same(again, longer)


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 120},
        {"recipe": replace(QUICK, steps=120)},
        {"recipe": Recipe(steps=120)},
        {"recipe": QUICK, "steps": 120},
    ],
    ids=["steps", "whole recipe", "partial recipe", "recipe and steps"],
)
def test_a_lengthened_fit_that_is_interrupted_goes_on_by_the_same_arguments(tmp_path, monkeypatch, options):
    one, two = tmp_path / "one.livi", tmp_path / "two.livi"
    for path in (one, two):
        quick_fit(checkpoint=path)
    whole = quick_fit(**options, checkpoint=one)
    interrupted(monkeypatch, Trainer, "_step", 30, **options, checkpoint=two, checkpoint_every=20)
    assert read_checkpoint(two)["state"]["step"] == 80
    same(quick_fit(**options, checkpoint=two), whole)


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 6},  # which shortens the start
        {"components": 3},  # which needs three restarts, where the recipe names two
        {"start": "net"},  # which has no MAP fit, whatever the recipe says
        {"recipe": Recipe(num_samples=4)},
        {"recipe": Recipe(num_samples=4), "steps": 12, "last_layer": "exact"},
    ],
    ids=str,
)
def test_a_fit_goes_on_by_the_arguments_that_began_it(tmp_path, options):
    path = tmp_path / "c.livi"
    options = {"steps": 12} | options
    whole = quick_fit(**options, checkpoint=path)
    same(quick_fit(**options, checkpoint=path), whole)
    longer = quick_fit(**options | {"steps": 20}, checkpoint=path)
    assert longer.history[-1]["step"] == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 50}, "expected the same recipe as before, or more steps, but steps was 60 and is 50"),
        ({"recipe": Recipe(steps=50)}, "steps was 60 and is 50"),
        ({"recipe": Recipe(affine_rate=0.1)}, "affine_rate was 0.005 and is 0.1"),
        ({"recipe": Recipe(num_samples=2), "steps": 90}, "num_samples was 8 and is 2"),
        ({"recipe": Recipe(kl_warm_up=0.9), "steps": 90}, "kl_warm_up was 0.3 and is 0.9"),
        ({"components": 2}, "components was 1 and is 2"),
    ],
    ids=str,
)
def test_another_recipe_than_the_checkpoint_s_is_an_error_that_names_it(tmp_path, options, message):
    path = tmp_path / "c.livi"
    quick_fit(checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        quick_fit(**{"recipe": None} | options, checkpoint=path)
    assert path.read_bytes() == before


def test_another_strategy_goes_on_from_the_same_checkpoint(tmp_path, monkeypatch):
    path, whole = tmp_path / "c.livi", quick_fit()
    interrupted(monkeypatch, Trainer, "_step", 30, checkpoint=path, checkpoint_every=20)
    monkeypatch.setattr(sys.modules["livi.model.problem"], "suitable_strategy", lambda *_, **__: livi.Loop())
    resumed = quick_fit(checkpoint=path)
    assert resumed.plan["strategy"] == "Loop()"
    torch.testing.assert_close(draws(resumed), draws(whole))


def test_a_device_of_another_kind_goes_on_from_the_same_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "c.livi"
    interrupted(monkeypatch, Trainer, "_step", 30, checkpoint=path, checkpoint_every=20)
    kept = read_checkpoint(path)
    kept["facts"]["device"] = "cuda:0"
    kept["state"]["rng"] = torch.zeros(16, dtype=torch.uint8)  # a GPU's generator has another state
    livi.posterior.storage.write_checkpoint(path, kept)
    resumed = quick_fit(checkpoint=path)
    assert resumed.history[-1]["step"] == 60
    assert torch.isfinite(draws(resumed)).all()


def test_checkpoints_may_be_written_before_anything_is_logged(tmp_path):
    every = quick_fit(steps=12, checkpoint=tmp_path / "c.livi", checkpoint_every=1)
    same(every, quick_fit(steps=12))


# --- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"batch_size": 7}, {"components": 2}], ids=str)
@pytest.mark.parametrize("at", [1, 31, 60])
def test_a_fit_interrupted_in_its_start_goes_on_bit_for_bit(tmp_path, monkeypatch, options, at):
    whole, path = quick_fit(**options), tmp_path / "c.livi"
    interrupted(monkeypatch, map_fits._Ascent, "advance", at, checkpoint=path, **options)
    assert read_checkpoint(path)["state"]["start"]["step"] == at - 1
    resumed = quick_fit(checkpoint=path, **options)
    same(resumed, whole)
    assert resumed.history == whole.history
    assert resumed.plan["interrupted_at"] is None


def test_a_start_is_written_now_and_then_and_may_be_lengthened(tmp_path, monkeypatch):
    path = tmp_path / "c.livi"

    class StopHere(Exception):  # noqa: N818
        pass

    def stop(self, *_):
        raise StopHere

    with monkeypatch.context() as patch:
        patch.setattr(map_fits, "ranked", stop)
        with pytest.raises(StopHere):
            quick_fit(checkpoint=path, checkpoint_every=25)
    assert read_checkpoint(path)["state"]["start"]["step"] == 50
    longer = quick_fit(checkpoint=path, recipe=None, steps=80)
    assert longer.history[-1]["step"] == 80
    assert longer.plan["recipe"]["map_steps"] == 60


def test_an_interrupted_start_says_so_at_once(monkeypatch):
    said, heard = io.StringIO(), []
    ranked = map_fits.ranked

    def listen(self, *args):
        heard.append(said.getvalue())  # what was said before the work that comes after
        return ranked(self, *args)

    monkeypatch.setattr(map_fits, "ranked", listen)
    pressed(monkeypatch, map_fits._Ascent, "advance", 41)
    begun = begin(quick_plan(), 0, FitProgress(60, stream=said))
    assert begun.interrupted
    assert "interrupted at step 40 of the MAP start: keeping the weights found by now" in heard[0]


@pytest.mark.parametrize("averaging", [None, 0.9])
@pytest.mark.parametrize("at", [5, 46])
def test_a_fit_interrupted_in_training_goes_on_bit_for_bit(tmp_path, monkeypatch, at, averaging):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 20)
    options, path = {"recipe": replace(QUICK, averaging=averaging)}, tmp_path / "c.livi"
    whole = quick_fit(**options)
    stopped = interrupted(monkeypatch, Trainer, "_step", at, checkpoint=path, **options)
    assert stopped.plan["interrupted_at"] == read_checkpoint(path)["state"]["step"] == 20 * (at // 20)
    resumed = quick_fit(checkpoint=path, **options)
    same(resumed, whole)
    assert resumed.history == whole.history


# --- from a trained network -----------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [None, Recipe(steps=700), QUICK], ids=["none", "steps", "with map_steps"])
@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_start_from_the_network_has_no_map_steps(recipe, last_layer):
    planned = quick_plan(recipe=recipe, start="net", last_layer=last_layer)
    assert planned.recipe.map_steps == 0
    assert planned.seconds_per_map_step == 0.0
    assert "the network's own weights" in str(planned)
    usual = quick_plan(recipe=None, last_layer=last_layer).recipe.steps
    assert planned.recipe.steps == (max(min(600, usual), usual // 2) if recipe is None else recipe.steps)


@pytest.mark.parametrize("components", [1, 3])
def test_every_component_begins_at_the_network_s_weights(components):
    planned = quick_plan(start="net", components=components)
    begun = begin(planned, seed=0)
    own = livi.Layout(network()).flatten()
    torch.testing.assert_close(begun.theta, own.expand(components, -1), rtol=0, atol=0)
    for generator in planned.bound.family.generators:
        made = generator(torch.randn(4000, generator.latent_dim, generator=torch.Generator().manual_seed(0)))
        assert (made.mean(0) - own).abs().max() < 6 * planned.recipe.spread / 4000**0.5 + 0.01
    outputs = planned.layout.apply(own, data()[0])[None]
    expected = planned.bound.likelihood.log_prob(outputs, data()[1]).sum().detach()
    assert begun.log_likelihood == pytest.approx(float(expected), rel=1e-9)


def test_an_unknown_start_is_an_error():
    with pytest.raises(ValueError, match=r"start: expected 'map', 'net' or the Posterior .*, got 'trained'"):
        quick_plan(start="trained")


def many_classes():
    x = torch.randn(5_000, 6, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 90), nn.Tanh(), nn.Linear(90, 60), nn.ReLU(), nn.Linear(60, 2))
    return net, (x, (x[:, 0] > 0).long()), livi.Categorical()


def test_a_mixture_by_rule_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    options = {"steps": 4, "progress": False, "checkpoint": tmp_path / "fit.livi"}
    whole = livi.fit(*many_classes(), **options | {"checkpoint": None})
    with monkeypatch.context() as patched:
        pressed(patched, Trainer, "_step", 3)
        with pytest.warns(FitWarning, match="interrupted"):
            stopped = livi.fit(*many_classes(), **options)
    assert stopped.plan["interrupted_at"] < 4
    again = livi.fit(*many_classes(), **options)
    assert again.plan["components"] == whole.plan["components"] == 5
    same(again, whole)


def test_a_fit_does_not_go_on_in_another_precision(tmp_path):
    path = tmp_path / "fit.livi"
    assert quick_fit(checkpoint=path).plan["autocast"] is None
    with pytest.raises(ValueError, match="but autocast was None and is bfloat16; pass the same arguments"):
        quick_fit(checkpoint=path, autocast=torch.bfloat16)
    kept = read_checkpoint(path)
    del kept["facts"]["autocast"]  # as of earlier versions
    livi.posterior.storage.write_checkpoint(path, kept)
    assert quick_fit(checkpoint=path, autocast=torch.bfloat16, steps=80).plan["autocast"] == "bfloat16"


def test_a_fit_does_not_go_on_from_a_checkpoint_of_another_network(tmp_path):
    options = {"start": "net", "checkpoint": tmp_path / "fit.livi"}
    quick_fit(**options)
    other = network()
    with torch.no_grad():
        other[0].weight += 0.1
    with pytest.raises(ValueError, match="the network to start from has other weights"):
        livi.fit(other, data(), livi.Gaussian(), recipe=QUICK, progress=False, last_layer="sampled", **options)


def test_components_beside_a_posterior_to_start_from_are_those_it_has():
    two = quick_fit(components=2)
    assert quick_plan(start=two).bound.family.num_components == 2
    assert quick_plan(start=two, components=2).bound.family.num_components == 2
    with pytest.raises(ValueError, match="components: expected none, for the posterior to start from brings its own"):
        quick_plan(start=two, components=1)
