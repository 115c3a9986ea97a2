"""Fits that go wrong: rolled back, stopped with a reason, or interrupted."""

import io
import signal
from dataclasses import replace

import pytest
import torch
from support.short_fits import QUICK, data, draws, network, quick_fit

import livi
from livi.inference import FitError, FitWarning, Recipe, Trainer
from livi.inference import loop as loop_module
from livi.inference.begin import begin
from livi.inference.progress import FitProgress
from livi.running import CtrlC


def test_a_non_finite_step_is_rolled_back_with_a_smaller_rate(monkeypatch):
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=replace(QUICK, steps=150))
    begin(plan, seed=0)
    said = io.StringIO()
    trainer = Trainer(plan.bound, plan.data, plan.recipe, progress=FitProgress(150, stream=said))
    taken, poisoned = Trainer._step, []

    def poison(self, batch):
        terms = taken(self, batch)
        if self.step == 113 and not poisoned:
            poisoned.append(True)
            with torch.no_grad():
                next(self.bound.family.parameters()).fill_(float("nan"))
        return terms

    monkeypatch.setattr(Trainer, "_step", poison)
    trainer.run()
    assert trainer.step == 150
    assert (trainer.rollbacks, trainer.rate_scale) == (1, 0.5)
    assert all(torch.isfinite(p).all() for p in plan.bound.parameters())
    assert "became non-finite at step 120: back to step 100 with 0.5 of the rate" in said.getvalue()


def test_a_fit_that_keeps_failing_stops_with_the_term_s_name():
    def broken(outputs, targets):
        return (outputs[..., 0] - targets) * float("nan")

    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK)
    begin(plan, seed=0)
    plan.bound.likelihood = livi.FunctionLikelihood(broken)
    with pytest.raises(FitError, match="log_likelihood became non-finite at step 10, after 3 attempts"):
        Trainer(plan.bound, plan.data, plan.recipe).run()


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_component_that_is_lost_is_left_out_of_a_mixture(monkeypatch, last_layer):
    run = Trainer.run

    def spoiled(self):
        run(self)
        with torch.no_grad():
            for parameter in self.bound.family.generators[1].parameters():
                parameter.fill_(30.0)

    options = {"components": 3, "likelihood": livi.Gaussian(0.1), "last_layer": last_layer}
    whole = quick_fit(**options)
    monkeypatch.setattr(Trainer, "run", spoiled)
    with pytest.warns(FitWarning, match="1 of 3 mixture components ended far below .* are left out"):
        posterior = quick_fit(**options)
    assert posterior.plan["components"] == 2
    before, after = (each.sampler if last_layer == "sampled" else each.sampler.earlier for each in (whole, posterior))
    expected = [before.generators[k].offset for k in (0, 2)]
    torch.testing.assert_close([each.offset for each in after.generators], expected, rtol=0, atol=0)
    assert posterior.predict(data()[0]).mean.sub(data()[1]).square().mean() < 1.0


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_mixture_of_nothing_but_lost_components_is_an_error(monkeypatch):
    run = Trainer.run

    def spoiled(self):
        run(self)
        with torch.no_grad():
            for parameter in self.bound.family.generators.parameters():
                parameter.fill_(30.0)

    monkeypatch.setattr(Trainer, "run", spoiled)
    with pytest.raises(FitError, match="ended far below its start"):
        quick_fit(components=2, likelihood=livi.Gaussian(0.1))


def test_a_bound_that_falls_far_is_a_divergence(monkeypatch):
    plan = livi.plan(network(), data(), livi.Gaussian(0.1), recipe=replace(QUICK, steps=400, kl_warm_up=0.1))
    begin(plan, seed=0)
    trainer = Trainer(plan.bound, plan.data, plan.recipe)
    taken, pushed = Trainer._step, []

    def push(self, batch):
        if self.step == 210 and not pushed:
            pushed.append(True)
            with torch.no_grad():
                self.bound.family.generators[0].skip.mul_(1000.0)
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", push)
    trainer.run()
    assert trainer.rollbacks == 1
    assert trainer.history[-1]["bound"] > -500


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_heard_after_the_step_at_hand(path):
    """Pressed within a step, before the first snapshot."""

    def press(outputs, targets):
        calls.append(len(calls))
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)
        return -(outputs[..., 0] - targets).square()

    calls, at = [], -1
    options = {"likelihood": livi.FunctionLikelihood(press), "recipe": replace(QUICK, map_steps=0, map_restarts=1)}
    whole = quick_fit(**options)
    calls, at = [], len(calls) - 30
    before = signal.getsignal(signal.SIGINT)
    with pytest.warns(FitWarning, match=r"interrupted: keeping the posterior of step \d+ of 60"):
        posterior = quick_fit(**options, checkpoint=path)
    assert signal.getsignal(signal.SIGINT) is before
    reached = posterior.plan["interrupted_at"]
    assert 20 < reached < 60
    assert posterior.history == whole.history[: reached // 10]
    calls, at = [], -1
    resumed = quick_fit(**options, checkpoint=path)
    torch.testing.assert_close(draws(resumed), draws(whole), rtol=0, atol=0)


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_does_not_wait():
    with CtrlC() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        assert ctrl_c.pressed
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        ctrl_c.pressed = False
    with pytest.raises(KeyboardInterrupt), CtrlC():
        signal.raise_signal(signal.SIGINT)  # heard at the latest at the end


def test_a_handler_of_the_user_s_own_stays():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(True))
    try:
        with CtrlC() as ctrl_c:
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (seen, ctrl_c.pressed) == ([True], False)


def test_ctrl_c_returns_the_posterior_so_far(monkeypatch):
    taken = Trainer._step

    def press(self, batch):
        if self.step == 45:
            raise KeyboardInterrupt
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", press)
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 20)
    with pytest.warns(FitWarning, match="interrupted: keeping the posterior of step 40 of 60"):
        posterior = quick_fit()
    assert posterior.plan["interrupted_at"] == 40
    assert posterior.history[-1]["step"] == 40
    assert torch.isfinite(posterior.predict(data()[0], num_samples=4).mean).all()


def test_minibatch_noise_is_no_divergence():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, 1, generator=rng)
    y = torch.sin(2 * x[:, 0]) + 0.3 * torch.randn(20_000, generator=rng)
    recipe = Recipe(steps=500, map_steps=300, map_restarts=1, kl_warm_up=0.1, num_samples=4, num_entropy_samples=1)
    plan = livi.plan(network(), (x, y), livi.Gaussian(), recipe=recipe)
    begin(plan, seed=0)
    trainer = Trainer(plan.bound, plan.data, recipe)
    trainer.run()
    assert trainer.rollbacks == 0


def test_chains_on_other_examples_than_the_fit_s_say_so():
    posterior = quick_fit()
    x, y = data()
    with pytest.warns(livi.FitWarning) as caught:
        livi.polish(posterior, (x[:10], y[:10]), chains=2, draws=16, steps=60, progress=False)
    assert any("expected the 24 examples that the posterior was fitted to, got 10" in str(w.message) for w in caught)
