"""Fitting: the recipe's schedule, the own-loop path, resuming bit for bit, rolling back, alarms."""

import io
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.inference import FitError, FitWarning, Recipe, Trainer, make_optimiser, map_weights
from livi.inference import loop as loop_module
from livi.inference import start as start_module
from livi.inference.begin import begin
from livi.inference.progress import Progress

QUICK = Recipe(steps=60, map_steps=60, map_restarts=2, num_samples=8, num_entropy_samples=2)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))


def data(count=24):
    x = torch.linspace(-1, 1, count)[:, None]
    return x, torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(1))


def quick_fit(**options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "sampled"} | options
    return livi.fit(network(), options.pop("data", data()), options.pop("likelihood", livi.Gaussian()), **options)


def draws(posterior):
    return posterior.sample(5, torch.Generator().manual_seed(9))


def test_learning_rate_rises_falls_and_ends_at_zero():
    recipe = Recipe(steps=1000, warm_up=0.1, kl_warm_up=0.3)
    rates = [recipe.rate_factor(step) for step in range(1000)]
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert rates[0] < 0.02
    assert rates[-1] < 1e-4
    assert [recipe.kl_weight(step) for step in (0, 300, 999)] == [pytest.approx(1 / 301), 1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps: expected at least 1"),
        ({"affine_rate": -1.0}, "affine_rate: expected a positive"),
        ({"kl_warm_up": 2.0}, "kl_warm_up: expected a share"),
        ({"num_samples": 2, "num_entropy_samples": 4}, "at most num_samples=2"),
    ],
)
def test_bad_recipes_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**options)


def test_fit_improves_the_bound_and_leaves_the_network_alone():
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    posterior = livi.fit(net, data(), livi.Gaussian(), recipe=replace(QUICK, steps=400, map_steps=300), progress=False)
    assert posterior.history[-1]["bound"] > posterior.history[0]["bound"] + 10
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    prediction = posterior.predict(data()[0], num_samples=64)
    assert (prediction.mean - data()[1]).square().mean().sqrt() < 0.4
    assert prediction.epistemic_std.shape == (24,)


def test_a_user_s_own_loop_gives_identical_numbers():
    posterior = quick_fit()
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK)
    begin(plan, seed=0)
    bound, optimiser = plan.bound, make_optimiser(plan.bound, QUICK)
    rng = torch.Generator().manual_seed(0)
    for step in range(QUICK.steps):
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * QUICK.rate_factor(step)
        terms = bound(*plan.data.first(), rng)
        optimiser.zero_grad()
        (-terms.tempered(QUICK.kl_weight(step)) / bound.num_data).backward()
        optimiser.step()
        if (step + 1) % 10 == 0:
            assert terms.bound.item() == pytest.approx(posterior.history[step // 10]["bound"], rel=1e-9)
    torch.testing.assert_close(draws(posterior), bound.posterior.sample(5, torch.Generator().manual_seed(9)))


def test_the_seed_decides_everything():
    torch.testing.assert_close(draws(quick_fit(seed=3)), draws(quick_fit(seed=3)), rtol=0, atol=0)
    assert not torch.equal(draws(quick_fit(seed=3)), draws(quick_fit(seed=4)))


def test_fit_leaves_the_global_random_stream_alone():
    net, likelihood = network(), livi.Gaussian()
    before = torch.random.get_rng_state()
    livi.fit(net, data(), likelihood, recipe=QUICK, progress=False)
    assert torch.equal(before, torch.random.get_rng_state())


class StopHere(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("stop_at", [20, 33])
def test_a_resumed_fit_continues_bit_for_bit(tmp_path, monkeypatch, batch_size, stop_at):
    options = {"batch_size": batch_size, "checkpoint_every": 11}
    whole = quick_fit(checkpoint=tmp_path / "whole.livi", **options)
    taken = Trainer._step

    def interrupted(self, batch):
        if self.step == stop_at:
            raise StopHere
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(StopHere):
        quick_fit(checkpoint=tmp_path / "parts.livi", **options)
    monkeypatch.setattr(Trainer, "_step", taken)
    resumed = quick_fit(checkpoint=tmp_path / "parts.livi", **options)
    torch.testing.assert_close(draws(resumed), draws(whole), rtol=0, atol=0)
    assert resumed.history == whole.history


def test_a_resumed_fit_from_a_shuffling_loader_continues_bit_for_bit(tmp_path, monkeypatch):
    loader = DataLoader(TensorDataset(*data()), batch_size=5, shuffle=True)
    whole = quick_fit(data=loader)
    taken = Trainer._step

    def interrupted(self, batch):
        if self.step == 27:
            raise StopHere
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(StopHere):
        quick_fit(data=loader, checkpoint=tmp_path / "c.livi", checkpoint_every=9)
    monkeypatch.setattr(Trainer, "_step", taken)
    torch.rand(7)  # whatever else drew from the global stream meanwhile
    resumed = quick_fit(data=loader, checkpoint=tmp_path / "c.livi", checkpoint_every=9)
    torch.testing.assert_close(draws(resumed), draws(whole), rtol=0, atol=0)


def test_a_fit_killed_while_it_writes_resumes_bit_for_bit(tmp_path):
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path.parent)!r})
        import torch
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_training import quick_fit, draws
        posterior = quick_fit(checkpoint=sys.argv[1], checkpoint_every=1)
        torch.save(draws(posterior), sys.argv[1] + ".draws")
        """
    )
    whole = draws(quick_fit())
    checkpoint = tmp_path / "killed.livi"
    for delay in (0.05, 0.4):
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script, str(checkpoint)])
        while not checkpoint.exists() and process.poll() is None:
            pass  # a checkpoint is written at every step from here on, so the kill falls into or beside a write
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(checkpoint)], check=True)
    torch.testing.assert_close(torch.load(f"{checkpoint}.draws", weights_only=True), whole, rtol=0, atol=0)


def test_a_checkpoint_of_another_fit_is_an_error_and_survives(tmp_path):
    path = tmp_path / "c.livi"
    quick_fit(checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="steps was 60 and is 50"):
        quick_fit(checkpoint=path, recipe=replace(QUICK, steps=50))
    with pytest.raises(ValueError, match="num_data was 24 and is 30"):
        quick_fit(checkpoint=path, data=data(30))
    with pytest.raises(ValueError, match="first_batch was"):
        quick_fit(checkpoint=path, data=(data()[0], -data()[1]))
    with pytest.raises(ValueError, match=r"specs\.2.* was 1.0 and is 9.0"):
        quick_fit(checkpoint=path, prior=livi.Normal(9.0))
    with pytest.raises(ValueError, match="expected seed 0 as before, got 7"):
        quick_fit(checkpoint=path, seed=7)
    assert path.read_bytes() == before


def test_a_non_finite_step_is_rolled_back_with_a_smaller_rate(monkeypatch):
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=replace(QUICK, steps=150))
    begin(plan, seed=0)
    said = io.StringIO()
    trainer = Trainer(plan.bound, plan.data, plan.recipe, progress=Progress(150, stream=said))
    taken, poisoned = Trainer._step, []

    def poison(self, batch):
        terms = taken(self, batch)
        if self.step == 113 and not poisoned:
            poisoned.append(True)
            with torch.no_grad():
                next(self.bound.posterior.parameters()).fill_(float("nan"))
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


def test_a_bound_that_falls_far_is_a_divergence(monkeypatch):
    plan = livi.plan(network(), data(), livi.Gaussian(0.1), recipe=replace(QUICK, steps=400, kl_warm_up=0.1))
    begin(plan, seed=0)
    trainer = Trainer(plan.bound, plan.data, plan.recipe)
    taken, pushed = Trainer._step, []

    def push(self, batch):
        if self.step == 210 and not pushed:
            pushed.append(True)
            with torch.no_grad():
                self.bound.posterior.generators[0].skip.mul_(1000.0)
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", push)
    trainer.run()
    assert trainer.rollbacks == 1
    assert trainer.history[-1]["bound"] > -500


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


def test_clipping_bounds_the_gradient_by_its_usual_norm():
    plain, clipped = quick_fit(), quick_fit(recipe=replace(QUICK, clip_factor=0.5))
    assert not torch.equal(draws(plain), draws(clipped))
    torch.testing.assert_close(draws(quick_fit(recipe=replace(QUICK, clip_factor=1e9))), draws(plain))


def test_weight_averaging_starts_at_the_start_and_replaces_the_parameters_at_the_end():
    plain, averaged = quick_fit(), quick_fit(recipe=replace(QUICK, averaging=0.9))
    assert not torch.equal(draws(plain), draws(averaged))
    # So slow an average stays where it began: at the MAP start, not at the generator's own initialisation.
    slow = quick_fit(recipe=replace(QUICK, averaging=0.999999))
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK)
    begin(plan, seed=0)
    torch.testing.assert_close(slow.sampler.centre(), plan.bound.posterior.centre(), rtol=1e-3, atol=1e-3)


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


def test_the_start_is_chosen_by_all_of_the_data_not_its_first_rows():
    x = torch.linspace(-3, 3, 1500)[:, None]  # in order: the first rows see one end only
    y = torch.where(x[:, 0] < 0, torch.zeros(1500), torch.sin(3 * x[:, 0]))
    plan = livi.plan(network(), (x, y), livi.Gaussian(0.2), recipe=QUICK, batch_size=100)
    recipe = replace(QUICK, map_restarts=6, map_steps=150)
    density = plan.problem
    theta, likelihood, joint = map_weights(density, recipe, seed=0)
    truth = plan.bound.likelihood.log_prob(livi.apply_many(plan.layout, theta, x), y).sum(1)
    torch.testing.assert_close(likelihood, truth)
    torch.testing.assert_close(joint, truth + plan.bound.prior.log_prob(theta))
    assert (joint.diff() <= 0).all()


def test_one_restart_that_runs_away_does_not_take_the_others_along(monkeypatch):
    made = start_module.initial_weights

    def wild(layout, count, seed):
        theta = made(layout, count, seed)
        theta[1] = 1e200
        return theta

    monkeypatch.setattr(start_module, "initial_weights", wild)
    posterior = quick_fit(recipe=replace(QUICK, map_steps=200))
    assert posterior.sampler.centre().abs().max() < 100


def test_ctrl_c_in_the_start_keeps_a_narrow_posterior_around_the_weights_found(monkeypatch, tmp_path):
    advance, taken = start_module._Ascent.advance, []

    def press(self, batch):
        taken.append(batch)
        if len(taken) == 40:
            raise KeyboardInterrupt
        return advance(self, batch)

    monkeypatch.setattr(start_module._Ascent, "advance", press)
    with pytest.warns(FitWarning, match="interrupted while looking for a start"):
        posterior = quick_fit(checkpoint=tmp_path / "c.livi")
    assert posterior.plan["interrupted_at"] == 0
    assert (tmp_path / "c.livi").exists()
    assert torch.isfinite(posterior.predict(data()[0], num_samples=4).mean).all()
    assert (draws(posterior) - posterior.sampler.centre()).abs().max() < 8 * QUICK.spread


def test_the_start_is_shown_and_its_cost_is_planned():
    said = io.StringIO()
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=replace(QUICK, map_steps=200))
    begin(plan, 0, Progress(60, stream=said))
    lines = said.getvalue().splitlines()
    assert lines[0].startswith("MAP start [")
    assert "100/200" in lines[0]
    assert "likelihood" in lines[-1]
    assert plan.seconds_per_map_step > 0
    assert "for the start" in str(plan)


def test_fewer_steps_shorten_the_start_in_proportion_and_more_do_not_lengthen_it():
    recipe = Recipe(steps=1000, map_steps=500)
    assert recipe.lasting(100) == replace(recipe, steps=100, map_steps=50)
    assert recipe.lasting(5000) == replace(recipe, steps=5000)
    assert (
        livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK, steps=6).recipe.map_steps == 6
    )


def test_a_mixture_starts_at_different_modes_with_odds_by_their_height():
    joint = torch.tensor([-10.0] * 5 + [-11.0] * 5 + [-60.0] * 10)
    starts = start_module.Starts(torch.arange(20.0)[:, None], joint, joint)
    assert starts.pick(1, seed=0).tolist() == [[0.0]]
    picks = torch.stack([starts.pick(4, seed).squeeze(1) for seed in range(200)])
    assert all(len(set(row.tolist())) == 4 for row in picks)
    shares = torch.bincount(picks.long().flatten(), minlength=20) / 800
    assert shares[10:].sum() == 0  # 50 nats below
    lower = float(shares[5:10].sum())
    assert 0.3 < lower < 0.48  # somewhat below one half: exp(-1/3) of the odds
    assert torch.equal(starts.pick(20, seed=3), starts.theta)


def test_an_unknown_option_of_fit_is_named():
    with pytest.raises(TypeError, match=r"fit: got 'stepz'; did you mean 'steps'\?$"):
        livi.fit(network(), data(), livi.Gaussian(), stepz=3)


def test_half_precision_and_a_missing_device_are_refused_before_any_work():
    with pytest.raises(ValueError, match=r"net: expected weights in float32 or float64, got torch.float16"):
        livi.plan(network().half(), data(), livi.Gaussian())
    with pytest.raises(ValueError, match="device: expected one that torch can use here"):
        livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", device="cuda:99")


def test_without_map_steps_the_start_is_the_module_itself():
    plan = livi.plan(
        network(), data(), livi.Gaussian(), last_layer="sampled", recipe=replace(QUICK, map_steps=0, map_restarts=4)
    )
    begin(plan, seed=0)
    begun = plan.bound.posterior.sample(2000, torch.Generator().manual_seed(0)).mean(0)
    assert (begun - livi.Layout(network()).flatten()).abs().max() < 0.02


def test_a_checkpoint_is_never_written_with_broken_weights(tmp_path, monkeypatch):
    taken, poisoned = Trainer._step, []

    def poison(self, batch):
        terms = taken(self, batch)
        if self.step == 23 and not poisoned:
            poisoned.append(True)
            with torch.no_grad():
                next(self.bound.posterior.parameters()).fill_(float("nan"))
        return terms

    monkeypatch.setattr(Trainer, "_step", poison)
    posterior = quick_fit(checkpoint=tmp_path / "c.livi", checkpoint_every=25)
    assert poisoned
    assert torch.isfinite(draws(posterior)).all()
    assert torch.equal(draws(quick_fit(checkpoint=tmp_path / "c.livi", checkpoint_every=25)), draws(posterior))


def test_trouble_with_the_first_batch_is_told_in_the_user_s_terms():
    with pytest.raises(RuntimeError, match=r"failed on its first batch of inputs \(24, 3\)"):
        quick_fit(data=(torch.ones(24, 3), torch.ones(24)))
    with pytest.warns(FitWarning, match="expected values of order 1"):
        livi.plan(network(), (data()[0], 300 + data()[1]), livi.Gaussian(), recipe=QUICK)
    with pytest.raises(TypeError, match=r"prior: expected a livi prior such as Normal\(1.0\), got float"):
        quick_fit(prior=lambda _: 1.0)


def test_a_mixture_is_trained_jointly_from_different_starts():
    posterior = quick_fit(components=3)
    offsets = torch.stack([generator.offset for generator in posterior.sampler.generators])
    assert torch.pdist(offsets).min() > 0.5
    assert posterior.plan["components"] == 3
    with pytest.raises(ValueError, match="one object for several"):
        quick_fit(components=2, generator=livi.Affine(3, 16))


def test_every_part_can_be_overridden_by_an_object_or_a_function():
    posterior = quick_fit(
        generator=lambda layout: livi.Affine.for_layout(layout, latent_dim=3),
        noise=livi.LearnedNoise(0.05),
        prior=livi.Laplace(0.7),
        entropy=livi.Lanczos(num_probes=1),
        latents=livi.Independent(),
    )
    facts = posterior.plan
    assert (facts["generator"], facts["latent_dim"], facts["noise"]) == ("Affine", 3, "LearnedNoise")
    assert facts["prior"] == "Laplace"
    assert facts["entropy"].startswith("Lanczos")


def test_subnetworks_are_fitted_by_pattern():
    posterior = quick_fit(include="2.*")
    assert posterior.layout.num_params == 6
    assert posterior.plan["layers"] == 1


def test_dict_batches_and_a_user_s_forward():
    batches = [{"values": data()[0], "labels": data()[1]}]
    posterior = quick_fit(data=batches, forward=lambda net, values: net(values))
    assert posterior.predict({"values": data()[0]}, num_samples=4).mean.shape == (24,)


def test_batch_norm_statistics_are_measured_on_training_inputs_that_are_kept():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))
    posterior = livi.fit(net, data(), livi.Gaussian(), recipe=QUICK, progress=False)
    assert posterior.buffers == {}
    torch.testing.assert_close(posterior.calibration.sort(0).values, data()[0])
    assert set(posterior.functions(3).buffers) == {"1.running_mean", "1.running_var"}
    one = posterior.predict(data()[0][:1], num_samples=8, rng=torch.Generator().manual_seed(0)).mean
    many = posterior.predict(data()[0], num_samples=8, rng=torch.Generator().manual_seed(0)).mean
    torch.testing.assert_close(one, many[:1])


def test_save_and_load_round_trip(tmp_path):
    posterior = quick_fit()
    posterior.save(tmp_path / "p.livi")
    loaded = livi.load(tmp_path / "p.livi", network())
    torch.testing.assert_close(draws(loaded), draws(posterior), rtol=0, atol=0)
    assert loaded.history == posterior.history
    assert loaded.plan["num_params"] == 16


def test_deterministic_prediction_has_no_epistemic_part():
    posterior = quick_fit()
    prediction = posterior.predict(data()[0], deterministic=True)
    assert (prediction.epistemic_std == 0).all()
    torch.testing.assert_close(prediction.mean, posterior.layout.apply(posterior.sampler.centre(), data()[0])[:, 0])


def test_mixed_precision_stays_close_and_keeps_the_entropy_precise():
    seen = []

    class Spy(livi.Exact):
        def __call__(self, generator, z, noise_std, rng=None):
            estimate = super().__call__(generator, z, noise_std, rng)
            seen.append(estimate.nats.dtype)
            return estimate

    torch.set_default_dtype(torch.float32)
    x, y = (tensor.float() for tensor in data())
    plain = livi.plan(network(), (x, y), livi.Gaussian(), recipe=QUICK, entropy=Spy())
    mixed = livi.plan(network(), (x, y), livi.Gaussian(), recipe=QUICK, entropy=Spy(), autocast=torch.bfloat16)
    one = plain.bound(x, y, torch.Generator().manual_seed(0))
    two = mixed.bound(x, y, torch.Generator().manual_seed(0))
    assert set(seen) == {torch.float32}
    assert two.log_likelihood.dtype == torch.float32
    assert one.log_likelihood != two.log_likelihood
    torch.testing.assert_close(one.log_likelihood, two.log_likelihood, rtol=0.05, atol=1.0)


def test_unused_parameters_are_named():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

        def forward(self, x):
            return self.used(x)

    with pytest.warns(FitWarning, match=r"do not depend on unused.weight, unused.bias"):
        livi.plan(Partly(), data(), livi.Gaussian(), recipe=QUICK)


def test_alarms_name_collapse_runaway_convergence_and_lost_likelihood():
    plan = livi.plan(network(), data(), livi.Gaussian(0.1), recipe=QUICK, last_layer="sampled")
    generator = plan.bound.posterior.generators[0]
    rng = torch.Generator().manual_seed(0)
    alarms = livi.inference.alarms.alarms
    generator.init_around(torch.zeros(16), 0.3)
    assert alarms(plan.bound, -10.0, -9.0, 0.0, rng) == []
    generator.init_around(torch.zeros(16), 1e-5)
    assert "Collapsed spread: the weights of 0, 2" in alarms(plan.bound, -10.0, -9.0, 0.0, rng)[0]
    generator.init_around(torch.zeros(16), 50.0)
    assert "Runaway spread" in alarms(plan.bound, -10.0, -9.0, 0.0, rng)[0]
    generator.init_around(torch.zeros(16), 0.3)
    assert "50% of the entropy estimates" in alarms(plan.bound, -10.0, -9.0, 0.5, rng)[0]
    assert "Likelihood far below the MAP start" in alarms(plan.bound, -100.0, -9.0, 0.0, rng)[0]


def test_the_plan_prints_choices_and_costs():
    text = str(livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK))
    for part in ("16 stochastic weights", "24 examples", "MLP, latent_dim 16", "Exact", "ms a step", "of tensors"):
        assert part in text


def test_progress_is_plain_lines_where_there_is_no_terminal():
    said = io.StringIO()
    progress = Progress(100, stream=said)
    row = {"bound": -1.0, "log_likelihood": -2.0, "log_prior": -3.0, "entropy": 4.0, "rate": 1e-3}
    for step in range(10, 101, 10):
        progress.show(step, row)
    lines = said.getvalue().splitlines()
    assert len(lines) == 10
    assert "100/100  bound -1.00 = -2.00 likelihood -3.00 prior +4.00 entropy  rate 1.0e-03" in lines[-1]
    assert "\r" not in said.getvalue()
    quiet = io.StringIO()
    Progress(100, quiet=True, stream=quiet).show(10, row)
    assert quiet.getvalue() == ""


def test_progress_on_a_terminal_rewrites_its_line():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    said = Terminal()
    progress = Progress(100, stream=said)
    row = {"bound": -1.0, "log_likelihood": -2.0, "log_prior": -3.0, "entropy": 4.0, "rate": 1e-3}
    progress.show(10, row)
    progress.show(20, row)
    assert said.getvalue().count("\r\x1b[2K") == 2
    assert "\n" not in said.getvalue()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: livi.fit(network(), data(), "gaussian"), TypeError, "likelihood: expected one of livi's"),
        (lambda: livi.fit("net", data(), livi.Gaussian()), TypeError, "net: expected a torch.nn.Module"),
        (
            lambda: livi.fit(network(), data(), livi.Gaussian(), components=0),
            ValueError,
            "components: expected at least",
        ),
        (lambda: livi.fit(network(), data(), livi.Gaussian(), include="9.*"), ValueError, "matches no parameter"),
    ],
)
def test_bad_arguments_are_clear_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
