"""What can be chosen in a fit, what comes back, and what is refused."""

import io
from dataclasses import replace

import pytest
import torch
from support.short_fits import QUICK, data, draws, network, quick_fit
from torch import nn

import livi
from livi.inference import FitWarning
from livi.inference.alarms import alarms
from livi.inference.final_check import Yardstick
from livi.inference.progress import FitProgress
from livi.model import problem as problem_module
from livi.model.data import TensorData
from livi.model.likelihoods import Weighted, pass_weights


def test_an_unknown_option_of_fit_is_named():
    with pytest.raises(TypeError, match=r"fit: got 'stepz'; did you mean 'steps'\?$"):
        livi.fit(network(), data(), livi.Gaussian(), stepz=3)


def test_half_precision_and_a_missing_device_are_refused_before_any_work():
    with pytest.raises(ValueError, match=r"net: expected weights in float32 or float64, got torch.float16"):
        livi.plan(network().half(), data(), livi.Gaussian())
    with pytest.raises(ValueError, match="device: expected one that torch can use here"):
        livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", device="cuda:99")
    with pytest.raises(TypeError, match=r"device: expected a torch.device or its name, got dtype torch.float32"):
        livi.plan(network(), data(), livi.Gaussian(), device=torch.float32)


def test_trouble_with_the_first_batch_is_told_in_the_user_s_terms():
    with pytest.raises(RuntimeError, match=r"failed on its first batch of inputs \(24, 3\)"):
        quick_fit(data=(torch.ones(24, 3), torch.ones(24)))
    with pytest.raises(RuntimeError, match=r"inputs \(24,\) .* one number each wants `x\[:, None\]`"):
        quick_fit(data=(torch.ones(24), torch.ones(24)))
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(32, 1))
    with pytest.raises(RuntimeError, match=r"inputs \(24, 6, 6\) .* images of one channel want `x\[:, None\]`"):
        livi.plan(net, (torch.ones(24, 6, 6), torch.ones(24)), livi.Gaussian())
    with pytest.warns(FitWarning, match="expected values of order 1"):
        livi.plan(network(), (data()[0], 300 + data()[1]), livi.Gaussian(), recipe=QUICK, standardise=False)
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
    options = {"recipe": QUICK, "entropy": Spy(), "last_layer": "sampled"}
    plain = livi.plan(network(), (x, y), livi.Gaussian(), **options)
    mixed = livi.plan(network(), (x, y), livi.Gaussian(), autocast=torch.bfloat16, **options)
    one = plain.bound(x, y, torch.Generator().manual_seed(0))
    two = mixed.bound(x, y, torch.Generator().manual_seed(0))
    assert set(seen) == {torch.float32}
    assert two.log_likelihood.dtype == torch.float32
    assert one.log_likelihood != two.log_likelihood
    torch.testing.assert_close(one.log_likelihood, two.log_likelihood, rtol=0.05, atol=1.0)
    assert "float32 on cpu, run in bfloat16" in str(mixed)


@pytest.mark.parametrize("labels", [False, True])
def test_a_last_layer_that_is_integrated_out_has_features_in_full_precision(labels):
    torch.set_default_dtype(torch.float32)
    x, y = (tensor.float() for tensor in data())
    targets = (y > 0).long() if labels else y
    likelihood = livi.Categorical() if labels else livi.Gaussian()
    options = {"recipe": QUICK, "last_layer": "conditional" if labels else "exact"}
    net = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1 + labels))
    plain = livi.plan(net, (x, targets), likelihood, **options)
    mixed = livi.plan(net, (x, targets), likelihood, autocast=torch.bfloat16, **options)
    one, two = (plan.bound(x, targets, torch.Generator().manual_seed(0)) for plan in (plain, mixed))
    assert torch.equal(one.log_likelihood, two.log_likelihood)
    assert "bfloat16" not in str(mixed)


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
    fixed = {"noise": livi.FixedNoise(0.01), "last_layer": "sampled"}
    plan = livi.plan(network(), data(), livi.Gaussian(0.1), recipe=QUICK, **fixed)
    generator = plan.bound.family.generators[0]
    rng = torch.Generator().manual_seed(0)
    generator.init_around(torch.zeros(16), 0.3)
    assert alarms(plan.bound, -10.0, Yardstick(-9.0), 0.0, rng) == []
    generator.init_around(torch.ones(16), 1e-5)
    assert "Collapsed spread: the weights of 0, 2" in alarms(plan.bound, -10.0, Yardstick(-9.0), 0.0, rng)[0]
    generator.init_around(torch.zeros(16), 50.0)
    assert "Runaway spread" in alarms(plan.bound, -10.0, Yardstick(-9.0), 0.0, rng)[0]
    generator.init_around(torch.zeros(16), 0.3)
    assert "50% of the entropy estimates" in alarms(plan.bound, -10.0, Yardstick(-9.0), 0.5, rng)[0]
    assert "Likelihood far below the MAP start" in alarms(plan.bound, -100.0, Yardstick(-9.0), 0.0, rng)[0]


def test_a_lost_likelihood_is_the_same_in_all_units_of_the_targets():
    plan = livi.plan(network(), data(), livi.Gaussian(0.1), recipe=QUICK, last_layer="sampled")
    plan.bound.family.generators[0].init_around(torch.zeros(16), 0.3)
    for shift in (0.0, 1e4, -1e4):  # nats, as of targets in other units
        levels = [shift + each for each in (-30.0, -9.0, -49.0)]
        for below, expected in ((0.0, []), (5.0, ["Likelihood far below the MAP start"])):  # allowed are 16 + 4
            found = alarms(plan.bound, levels[0] + 2.0 - below, Yardstick(*levels[1:]), 0.0, torch.Generator())
            assert [text.partition(":")[0] for text in found] == expected


@pytest.mark.parametrize(("constant", "warned"), [(None, False), (-300.0, False), (-140.0, True), (5.0, False)])
def test_half_of_what_labels_had_to_lose_is_far_below_the_start_though_weights_are_many(constant, warned):
    net = nn.Sequential(nn.Linear(1, 100), nn.Tanh(), nn.Linear(100, 2))  # 402 weights, a nat each
    x, y = data()
    plan = livi.plan(net, (x, (y > 0).long().flatten()), livi.Categorical(), recipe=QUICK, last_layer="sampled")
    rng = torch.Generator().manual_seed(0)
    plan.bound.family.begin_around(torch.zeros(1, 402), 0.3)
    found = alarms(plan.bound, -110.0, Yardstick(0.0, constant), 0.0, rng)
    assert any("far below the MAP start" in text for text in found) == warned


def test_starts_and_ensembles_run_in_the_precision_of_the_fit(monkeypatch):
    seen = []
    taken = problem_module.log_likelihood

    def spy(*args, autocast=None, **kwargs):
        seen.append(autocast)
        return taken(*args, autocast=autocast, **kwargs)

    monkeypatch.setattr(problem_module, "log_likelihood", spy)  # that of problems: a bound has its own
    x, y = data()
    for autocast in (torch.bfloat16, None):
        seen.clear()
        recipe = replace(QUICK, steps=1, map_steps=3)
        how = {"recipe": recipe, "autocast": autocast, "last_layer": "sampled", "progress": False}
        livi.fit(network(), (x, y), livi.Gaussian(0.1), **how)
        assert set(seen) == {autocast}
        seen.clear()
        livi.rivals.fit_ensemble(network(), (x, y), livi.Gaussian(0.1), members=2, steps=3, autocast=autocast)
        assert set(seen) == {autocast}


def test_a_layer_that_varies_by_a_noise_worth_having_has_not_collapsed():
    for share, expected in ((0.2, False), (0.01, True)):
        noise = livi.FixedNoise(3.0 * share)
        plan = livi.plan(network(), data(), livi.Gaussian(0.1), recipe=QUICK, last_layer="sampled", noise=noise)
        plan.bound.family.generators[0].init_around(torch.full((16,), 3.0), 1e-5)
        found = alarms(plan.bound, -10.0, Yardstick(-9.0), 0.0, torch.Generator().manual_seed(0))
        assert any("Collapsed" in text for text in found) == expected


def test_spreads_are_held_against_the_scale_of_a_learned_prior_too():
    def widest(prior):
        plan = livi.plan(network(), data(), livi.Gaussian(0.1), prior=prior, recipe=QUICK, last_layer="sampled")
        plan.bound.family.generators[0].init_around(torch.zeros(16), 0.3)
        return livi.inference.alarms._spreads(plan.bound, torch.Generator().manual_seed(0))[1]

    def learned(layout):
        return livi.Relevance.for_layout(layout, gain=0.05)

    def fixed(layout):
        return livi.Normal(learned(layout).scale().detach().expand(layout.num_params))

    torch.testing.assert_close(widest(learned), widest(fixed))


def test_the_plan_prints_choices_and_costs():
    text = str(livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK))
    for part in ("16 stochastic weights", "24 examples", "MLP, latent_dim 16", "Exact", "ms per step", "of tensors"):
        assert part in text


def test_progress_is_plain_lines_where_there_is_no_terminal():
    said = io.StringIO()
    progress = FitProgress(100, stream=said)
    row = {"bound": -1.0, "log_likelihood": -2.0, "log_prior": -3.0, "entropy": 4.0, "rate": 1e-3}
    for step in range(10, 101, 10):
        progress.show(step, row)
    lines = said.getvalue().splitlines()
    assert len(lines) == 10
    assert "100/100  bound -1.00 = -2.00 likelihood -3.00 prior +4.00 entropy  rate 1.0e-03" in lines[-1]
    assert "\r" not in said.getvalue()
    quiet = io.StringIO()
    FitProgress(100, quiet=True, stream=quiet).show(10, row)
    assert quiet.getvalue() == ""


def test_progress_on_a_terminal_rewrites_its_line():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    said = Terminal()
    progress = FitProgress(100, stream=said)
    row = {"bound": -1.0, "log_likelihood": -2.0, "log_prior": -3.0, "entropy": 4.0, "rate": 1e-3}
    progress.show(10, row)
    progress.show(20, row)
    assert said.getvalue().count("\r\x1b[2K") == 2
    assert "\n" not in said.getvalue()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: livi.fit(network(), data(), "gaussian"), TypeError, "likelihood: expected one of livi's"),
        (lambda: livi.fit(network(), data(), livi.Gaussian), TypeError, r"got the class Gaussian; pass Gaussian\(\)"),
        (lambda: livi.fit("net", data(), livi.Gaussian()), TypeError, "net: expected a torch.nn.Module"),
        (
            lambda: livi.fit(network(), data(), livi.Gaussian(), components=0),
            ValueError,
            "components: expected at least",
        ),
        (lambda: livi.fit(network(), data(), livi.Gaussian(), include="9.*"), ValueError, "matches no parameter"),
        (lambda: quick_fit(autocast="bf16"), TypeError, "autocast: expected torch.bfloat16 or None, got str 'bf16'"),
        (lambda: quick_fit(autocast=torch.int8, last_layer="exact"), ValueError, "autocast: .*, got torch.int8; leave"),
        (
            lambda: livi.rivals.fit_map(network(), data(), livi.Gaussian(), autocast="bf16"),
            TypeError,
            "autocast: expected torch.bfloat16 or None, got str",
        ),
        (lambda: quick_fit(start="nett"), ValueError, "start: expected 'map', 'net' or the Posterior of"),
        (lambda: quick_fit(checkpoint_every=0), ValueError, "checkpoint_every: expected at least 1, got 0"),
        (lambda: quick_fit(checkpoint_every=1.5), TypeError, "checkpoint_every: expected an int, got float"),
    ],
)
def test_bad_arguments_are_clear_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_posterior_does_not_change_with_the_tensors_that_it_was_fitted_to():
    x, y = (each.clone() for each in data())
    posterior = livi.fit(network(), (x, y), livi.Gaussian(0.1), recipe=QUICK, progress=False)
    before = posterior.sample(3, torch.Generator().manual_seed(0))
    x.fill_(9.0)
    y.fill_(100.0)
    torch.testing.assert_close(posterior.sample(3, torch.Generator().manual_seed(0)), before)


def test_an_example_without_a_class_leaves_the_last_layer_to_the_sampler():
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    net = nn.Sequential(nn.Linear(4, 60), nn.Tanh(), nn.Linear(60, 3))
    assert livi.plan(net, (x, y), livi.Categorical(), steps=2).problem.integrated is not None
    y[5] = -100
    plan = livi.plan(net, (x, y), livi.Categorical(), steps=2)
    assert "not every example has one class" in plan.problem.why_sampled


def test_weights_of_one_change_nothing_about_a_plan():
    torch.manual_seed(0)
    x = torch.randn(50, 4)
    y, net = (x[:, 0] > 0).long(), nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 2))
    common = {"last_layer": "sampled", "steps": 2}
    plain = livi.plan(net, (x, y), livi.Categorical(), **common)
    weighted = Weighted(livi.Categorical())
    counted = livi.plan(net, ((x, torch.ones(50)), y), weighted, forward=pass_weights, **common)
    assert counted.problem.classes
    torch.testing.assert_close(counted.bound.prior.scale(), plain.bound.prior.scale())
    assert (counted.summary()["noise"], counted.recipe) == (plain.summary()["noise"], plain.recipe)


def test_the_map_fit_of_a_varying_noise_is_blunt_by_output_and_with_weights():
    rng = torch.Generator().manual_seed(0)
    targets = torch.randn(50, 2, generator=rng) + torch.tensor([0.0, 1000.0])
    own = livi.HeteroscedasticGaussian()
    assert own.for_map(targets).floor == pytest.approx(0.1, rel=0.3)
    assert Weighted(own).for_map(targets).base.floor == own.for_map(targets).floor


def test_batches_of_a_size_that_was_given_keep_it():
    x, y = data()
    some = TensorData(x, y, 10)
    assert livi.plan(network(), some, livi.Gaussian(0.1), recipe=QUICK, last_layer="sampled").data.batch_size == 10


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"recipe": {"steps": 3}}, r"recipe: expected a livi\.Recipe.*got dict"),
        ({"noise": 1.0}, r"noise: expected a livi noise such as .*got float"),
        ({"noise": livi.FixedNoise}, "noise: .*got the class FixedNoise"),
        ({"generator": livi.MLP}, "generator: .*lambda layout.*got the class MLP"),
        ({"entropy": "exact"}, r"entropy: expected an estimator such as livi\.Exact\(\).*got str"),
        ({"entropy": livi.Lanczos}, "entropy: .*got the class Lanczos"),
        ({"latents": "x"}, "latents: expected latents such as .*got str"),
        ({"family": "gaussian"}, r"family: expected a livi\.Family.*got str"),
    ],
)
def test_options_of_another_kind_are_named(option, message):
    with pytest.raises(TypeError, match=message):
        livi.plan(network(), data(), livi.Gaussian(), **option)
