"""Fits that run away: undone while they train, begun again where they end below their start, else an error."""

import functools
import math
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.spoiled_data import SpoiledBatches
from torch import nn

import livi
from livi.experiments.datasets import uci
from livi.inference import FitError, Recipe, Trainer, begin
from livi.inference import loop as loop_module
from livi.inference.final_check import Yardstick, constant_log_likelihood, log_predictive, lost_likelihood

fit_module = sys.modules["livi.inference.fitting"]
QUICK = Recipe(steps=60, map_steps=200, map_restarts=2, num_samples=8, num_entropy_samples=2)


def network(inputs=1, outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, outputs))


def data(count=150):
    x = torch.linspace(-1, 1, count)[:, None]
    return x, torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(1))


def trainer_of(recipe, **options):
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=recipe, **options)
    begin(plan, seed=0)
    return Trainer(plan.bound, plan.data, plan.recipe)


def quick_fit(**options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "sampled"} | options
    return livi.fit(network(), data(), livi.Gaussian(), **options)


def pushed(monkeypatch, steps, change):
    """The fit's parameters changed as each of these steps comes, in this order, once."""
    taken, left = Trainer._step, list(steps)

    def push(self, batch):
        if left and self.step == left[0]:
            left.pop(0)
            with torch.no_grad():
                change(self.bound)
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", push)
    return left


def wide(bound):
    bound.family.generators[0].skip.mul_(300.0)


def lost(bound):
    bound.family.generators[0].offset.add_(30.0)


def broken(bound):
    bound.family.generators[0].skip.fill_(float("nan"))


# --- while it trains ------------------------------------------------------------------------------


WARM = replace(QUICK, steps=600, kl_warm_up=0.5, num_samples=4)


@functools.cache
def calm_end():
    """The bound where nothing happens, and its noise."""
    trainer = trainer_of(WARM)
    trainer.run()
    assert trainer.rollbacks == 0
    bounds = [row["bound"] for row in trainer.history]
    return sum(bounds[-5:]) / 5, float(torch.tensor(bounds[-20:]).std())


# Early, late in a window of a hundred steps, and shortly before a state is kept to go back to.
@pytest.mark.parametrize(("change", "at"), [(wide, 120), (lost, 120), (lost, 260), (wide, 299)])
def test_a_jump_within_the_kl_warm_up_is_undone(monkeypatch, change, at):
    bound, noise = calm_end()
    shaken = trainer_of(WARM)
    left = pushed(monkeypatch, [at], change)
    shaken.run()
    assert not left
    assert shaken.rollbacks == 1
    assert shaken.rolled_back_at == (200 if at == 120 else 400)  # where most of a hundred steps lie far below
    assert abs(sum(row["bound"] for row in shaken.history[-5:]) / 5 - bound) < 5 + 4 * noise


def test_a_calm_fit_is_never_undone_whatever_its_warm_up():
    for kl_warm_up in (0.0, 1.0):
        trainer = trainer_of(replace(WARM, steps=300, kl_warm_up=kl_warm_up))
        trainer.run()
        assert trainer.rollbacks == 0


@pytest.mark.parametrize("times", [1, 2])
def test_a_rollback_that_is_forgiven_gets_its_rate_back(monkeypatch, times):
    monkeypatch.setattr(loop_module, "FORGIVEN_AFTER", 100)
    trainer = trainer_of(replace(WARM, map_steps=0, warm_up=0.0))
    pushed(monkeypatch, [113] * times, broken)
    trainer.run()
    scales = [
        row["rate"] / (QUICK.affine_rate * trainer.recipe.rate_factor(int(row["step"]) - 1)) for row in trainer.history
    ]
    rates = {int(row["step"]): round(scale, 6) for row, scale in zip(trainer.history, scales, strict=True)}
    assert rates[100] == 1.0
    assert rates[110] == rates[200] == 0.5**times
    assert rates[310] == 0.5 ** (times - 1)  # half of what was lost for each hundred steps without trouble
    assert rates[600] == 1.0
    assert (trainer.rollbacks, trainer.rate_scale) == (0, 1.0)


# --- where it ends --------------------------------------------------------------------------------


def test_a_fit_that_ends_far_below_its_start_begins_again_narrower(monkeypatch, capsys):
    left = pushed(monkeypatch, [55], lost)
    spread = []
    spread_out = fit_module.spread_out
    monkeypatch.setattr(
        fit_module, "spread_out", lambda plan, rows, factor: [spread.append(factor), spread_out(plan, rows, factor)]
    )
    posterior = quick_fit(progress=True)
    assert not left
    assert spread == [0.25]
    said = capsys.readouterr().err
    assert "the fit ended far below its start" in said
    assert "Starting again, 0.25 times as wide and at half the rates." in said
    factor = QUICK.rate_factor(9)
    assert posterior.history[0]["rate"] == pytest.approx(0.5 * QUICK.affine_rate * factor)
    x, y = data()
    assert (posterior.predict(x).mean - y).square().mean().sqrt() < 0.3


def test_a_fit_that_fails_twice_raises_an_error_that_holds_what_was_reached(monkeypatch):
    pushed(monkeypatch, [55, 55], lost)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", livi.FitWarning)  # alarms about what was reached
        with pytest.raises(FitError, match=r"ended far below its start: .* nats.*this error's `posterior`") as caught:
            quick_fit()
    posterior = caught.value.posterior
    assert posterior.predict(data()[0]).mean.shape == (150,)
    assert posterior.history[-1]["step"] == 60


def test_steps_that_keep_failing_begin_again_before_they_are_an_error(monkeypatch):
    left = pushed(monkeypatch, [5] * 4, broken)
    posterior = quick_fit()
    assert not left
    assert posterior.history[-1]["step"] == 60
    pushed(monkeypatch, [5] * 8, broken)
    with pytest.raises(FitError, match="became non-finite at step 10, after 3 attempts") as caught:
        quick_fit()
    assert torch.isfinite(caught.value.posterior.predict(data()[0]).mean).all()


def test_a_fit_that_keeps_what_its_start_explained_is_left_alone(monkeypatch):
    judged = []

    def watched(*args):
        judged.append(lost_likelihood(*args))
        return judged[-1]

    monkeypatch.setattr(fit_module, "lost_likelihood", watched)
    quick_fit()
    assert judged == [""]


def test_the_judgement_is_between_a_constant_and_the_start():
    trainer = trainer_of(QUICK)
    bound, rng = trainer.bound, torch.Generator().manual_seed(0)
    constant, reached = constant_log_likelihood(bound, trainer.data), log_predictive(bound, trainer.data, rng)
    assert reached > constant + 50
    assert lost_likelihood(bound, trainer.data, Yardstick(reached, constant), rng) == ""
    assert lost_likelihood(bound, trainer.data, Yardstick(constant + 3 * (reached - constant), constant), rng) == ""
    high = constant + 4 * (reached - constant + 60)
    assert "worth" in lost_likelihood(bound, trainer.data, Yardstick(high, constant), rng)
    assert "worth" in lost_likelihood(bound, trainer.data, Yardstick(high, constant, 0.1), rng)
    assert lost_likelihood(bound, trainer.data, Yardstick(high, constant, 2.0), rng) == ""
    assert lost_likelihood(bound, trainer.data, Yardstick(constant + 19.0, constant), rng) == ""  # nothing to lose
    bound.likelihood = livi.FunctionLikelihood(lambda outputs, targets: -(outputs[..., 0] - targets).square())
    assert (
        lost_likelihood(bound, trainer.data, Yardstick(1e9, constant_log_likelihood(bound, trainer.data)), rng) == ""
    )  # nothing to compare with


def test_the_log_predictive_is_that_of_a_mixture_of_draws():
    trainer = trainer_of(replace(QUICK, num_samples=32))
    bound, (x, y) = trainer.bound, data()
    found = log_predictive(bound, trainer.data, torch.Generator().manual_seed(4))
    with torch.no_grad():
        theta = bound.family.sample(32, torch.Generator().manual_seed(4))
        each = bound.likelihood.log_prob(livi.apply_many(trainer.bound.family.layout, theta, x), y)
    assert found == pytest.approx(float((torch.logsumexp(each, 0) - math.log(32)).sum()), rel=1e-9)


# --- the best constant ----------------------------------------------------------------------------


def labels(*shape, high=4):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(3))


def values(*shape):
    return 2.0 + 3.0 * torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def column(*shape):
    targets = values(50, *shape)
    return livi.Gaussian(targets.std(0, correction=0), learned=True), targets, targets.mean(0).reshape(-1)


def known(obs_std, *shape):
    targets = values(50, *shape)
    return livi.Gaussian(obs_std), targets, targets.mean(0).reshape(-1)


def heteroscedastic():
    targets = values(50, 2)
    raw = torch.log(torch.expm1(targets.std(0, correction=0) - 1e-2))  # behind the floor
    return livi.HeteroscedasticGaussian(), targets, torch.cat([targets.mean(0), raw])


def classes():
    return livi.Categorical(), labels(50), torch.bincount(labels(50)).log()


def independent(kind, *shape):
    targets = labels(50, *shape, high=2).double()
    return kind, targets, torch.logit(targets.mean(0)).reshape(-1)


CONSTANTS = {  # a likelihood, targets, and the outputs of one example that suit all of them best
    "Gaussian": column,
    "Gaussian of a column": lambda: column(1),
    "Gaussian of several": lambda: column(3),
    "Gaussian of known noise": lambda: known(0.7),
    "Gaussian of known noises": lambda: known([0.7, 5.0], 2),
    "HeteroscedasticGaussian": heteroscedastic,
    "Categorical": classes,
    "Bernoulli": lambda: independent(livi.Bernoulli()),
    "Multilabel": lambda: independent(livi.Multilabel(), 3),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_the_best_constant_is_worth_what_the_likelihood_says_of_it(case):
    likelihood, targets, output = CONSTANTS[case]()
    outputs = output.double().expand(1, 50, -1)
    found = likelihood.double().constant_log_prob(targets)
    assert found == pytest.approx(float(likelihood.log_prob(outputs, targets).sum().detach()), rel=1e-9)
    for other in (output + 0.1, output - 0.1):
        moved = likelihood.log_prob(other.double().expand(1, 50, -1), targets).sum()
        assert float(moved.detach()) <= found + 1e-9


WEIGHABLE = {
    "Gaussian": livi.Gaussian,
    "Gaussian of known noise": lambda: livi.Gaussian(0.7),
    "HeteroscedasticGaussian": livi.HeteroscedasticGaussian,
    "StudentT": livi.StudentT,
    "StudentT of known scale": lambda: livi.StudentT(0.7, learned_df=True),
    "LogNormal": livi.LogNormal,
    "LogNormal of known scale": lambda: livi.LogNormal(0.7),
    "Poisson": livi.Poisson,
    "NegativeBinomial": livi.NegativeBinomial,
    "NegativeBinomial of known dispersion": lambda: livi.NegativeBinomial(0.7),
    "Bernoulli": livi.Bernoulli,
    "Categorical": livi.Categorical,
}


@pytest.mark.parametrize("case", WEIGHABLE)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)], ids=str)
def test_an_example_of_weight_three_counts_in_the_best_constant_as_three_examples(case, shape):
    likelihood, weights = WEIGHABLE[case]().double(), labels(40)
    targets = labels(40, *shape, high=2 if case == "Bernoulli" else 5)
    targets = targets + 1.0 if "LogNormal" in case else targets
    repeated = likelihood.constant_log_prob(targets.repeat_interleave(weights, 0))
    assert likelihood.constant_log_prob(targets, weights) == pytest.approx(repeated, rel=1e-6)


def own_weights(net, inputs, weights):
    return net(inputs), weights


@pytest.mark.parametrize("forward", [livi.pass_weights, own_weights])
def test_a_fit_with_weights_is_judged_by_the_weighted_best_constant(forward):
    x, y = data()
    weights = torch.rand(150, generator=torch.Generator().manual_seed(2))
    options = {"forward": forward, "last_layer": "sampled", "recipe": QUICK, "batch_size": 75}
    plan = livi.plan(network(), ((x, weights), y), livi.Weighted(livi.Gaussian()), **options)
    constant = constant_log_likelihood(plan.bound, plan.data)
    assert constant == pytest.approx(livi.Gaussian().constant_log_prob(y, weights), rel=1e-5)
    text = lost_likelihood(plan.bound, plan.data, Yardstick(constant + 1e4, constant), torch.Generator().manual_seed(0))
    assert text.startswith("the fit ended far below its start")


def test_the_best_constant_counts_pixels_but_not_ignored_ones():
    targets = labels(6, 4, 5)
    targets[0] = 7
    counted = targets[1:].flatten()
    shares = torch.bincount(counted).double() / len(counted)
    expected = float(shares.log()[counted].sum())
    assert livi.Categorical(ignore_index=7).constant_log_prob(targets) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("likelihood", [livi.Bernoulli(), livi.Categorical()], ids=["Bernoulli", "Categorical"])
def test_one_class_alone_is_explained_by_a_constant(likelihood):
    assert likelihood.constant_log_prob(torch.ones(9).long()) == 0.0


# --- a network of means and noises ----------------------------------------------------------------


def heteroscedastic_fit(x, y, recipe):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(x.shape[1], 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    plan = livi.plan(net, (x, y), livi.HeteroscedasticGaussian(), last_layer="sampled", recipe=recipe)
    start = begin(plan, seed=0).log_likelihood
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", livi.FitWarning)
        posterior = livi.fit(
            net, (x, y), livi.HeteroscedasticGaussian(), last_layer="sampled", recipe=recipe, progress=False
        )
    return start, float(posterior.predict(x).log_prob(y).sum())


def assert_half_is_kept(x, y, recipe):
    start, reached = heteroscedastic_fit(x, y, recipe)
    constant = livi.HeteroscedasticGaussian().constant_log_prob(y)
    assert start > constant + 20
    assert reached > 0.5 * (start + constant)


def test_means_and_noises_keep_half_of_what_their_start_explained():
    rng = torch.Generator().manual_seed(5)
    x = torch.randn(500, 2, generator=rng)
    y = torch.sin(2 * x[:, 0]) + 0.3 * (0.2 + x[:, 1].abs()) * torch.randn(500, generator=rng)
    assert_half_is_kept(x, (y - y.mean()) / y.std(), Recipe(steps=200, map_steps=150, map_restarts=1, num_samples=8))


def test_means_and_noises_of_houses_keep_half_of_what_their_start_explained():
    root = os.environ.get("LIVI_DATA_DIR")
    if root is None or "boston" not in uci.available(Path(root) / "uci"):
        pytest.skip("no boston; set LIVI_DATA_DIR")
    table = uci.read(Path(root) / "uci", "boston")
    x, y = torch.tensor(table.inputs), torch.tensor(table.targets)
    recipe = Recipe(steps=200, map_steps=300, map_restarts=1, num_samples=8)
    assert_half_is_kept((x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std(), recipe)


def test_a_term_that_is_not_finite_between_two_logged_steps_does_not_go_unnoticed(monkeypatch):
    # A bad label gives NaN and no gradient where nothing may be looked at, as in a replayed step.
    monkeypatch.setattr("livi.checks.may_be_read", lambda _: False)
    x, y = torch.randn(64, 2, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
    net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3))
    recipe = Recipe(steps=60, map_steps=0, map_restarts=1, num_samples=8, num_entropy_samples=2)
    with pytest.raises(FitError, match="log_likelihood became non-finite"):
        livi.fit(net, SpoiledBatches(x, y, epoch=5), livi.Categorical(), num_data=64, recipe=recipe, progress=False)


def test_a_map_fit_of_varying_noise_cannot_fit_single_points():
    likelihood, targets = livi.HeteroscedasticGaussian(0.01, learned=True), torch.tensor([-4.0, 0.0, 4.0])
    blunt = likelihood.for_map(targets)
    raw = torch.full((1, 3, 1), -50.0)
    assert float(blunt.std(raw).detach().max()) == pytest.approx(0.4)
    assert float(likelihood.std(raw).detach().max()) == pytest.approx(0.01)
    assert blunt.log_level is likelihood.log_level  # what is learned is learned of both
    assert livi.Gaussian(0.1).for_map(targets).obs_std() == pytest.approx(0.1)
