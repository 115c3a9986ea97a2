"""BatchNorm under a posterior: every drawn network predicts with statistics of its own."""

import copy

import pytest
import torch
from safetensors import safe_open
from support.samplers import convolutional, sampler_for, x_for
from torch import nn
from torch.nn import functional as F

import livi
from livi import ImplicitPosterior, Layout, Posterior
from livi.network import Loop, Vmap, apply_many, record_statistics
from livi.posterior.prediction.chunks import measure_statistics

both_strategies = pytest.mark.parametrize("strategy", [Vmap(), Vmap(2), Loop(), None], ids=repr)


def column():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Tanh())


def regression_net():
    return nn.Sequential(*column(), nn.Linear(5, 1))


def spread_posterior(net=None, count=40, spread=1.0):
    """Weights so wide apart that no statistics suit them all."""
    layout = Layout(net or regression_net())
    posterior = ImplicitPosterior(layout, livi.Affine(3, layout.num_params), livi.FixedNoise(0.1))
    posterior.generators[0].init_around(layout.flatten(), spread)
    return Posterior(posterior.requires_grad_(False), livi.Gaussian(0.3), calibration=3.0 + 2.0 * x_for(count, 3))


def trained_once(layout, theta, x):
    """What torch keeps of one batch in training mode, with variances as it divides by them."""
    module = copy.deepcopy(layout.module).train()
    Layout(module).load_(theta)
    counts = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.momentum = 1.0
            layer.register_forward_pre_hook(
                lambda layer, args, name=name: counts.update({name: args[0].numel() / layer.num_features})
            )
    module(x)
    found = dict(module.named_buffers())
    return found | {f"{name}.running_var": found[f"{name}.running_var"] * (1 - 1 / n) for name, n in counts.items()}


def tensors_in(path):
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@both_strategies
@pytest.mark.parametrize(("net", "shape"), [(column, (9, 3)), (convolutional, (5, 1, 6, 6))])
def test_recorded_statistics_are_those_of_a_pass_in_training_mode_at_every_theta(net, shape, strategy):
    sampler, x = sampler_for(net(), num_samples=4), x_for(*shape)
    found = record_statistics(sampler.layout, sampler.theta, x, strategy=strategy)
    kinds = "running_mean", "running_var"
    assert found.keys() == {f"{name}.{kind}" for name in sampler.layout.batch_norms for kind in kinds}
    for i, theta in enumerate(sampler.theta):
        expected = trained_once(sampler.layout, theta, x)
        torch.testing.assert_close({name: values[i] for name, values in found.items()}, {n: expected[n] for n in found})


@both_strategies
@pytest.mark.parametrize("training", [True, False])
def test_recording_leaves_the_module_as_it_was(training, strategy):
    sampler = sampler_for(column().train(training), num_samples=3)
    norm = sampler.layout.module[1]
    norm.momentum, norm.num_batches_tracked = 0.3, torch.tensor(7)
    before = {name: value.clone() for name, value in sampler.layout.module.state_dict().items()}
    record_statistics(sampler.layout, sampler.theta, x_for(8, 3), strategy=strategy)
    torch.testing.assert_close(dict(sampler.layout.module.state_dict()), before, rtol=0, atol=0)
    assert (norm.momentum, norm.training, norm.track_running_stats) == (0.3, training, True)


def test_norms_that_are_frozen_or_keep_no_statistics_are_not_recorded():
    frozen = sampler_for(column())
    layout = Layout(frozen.layout.module, exclude="1.*")
    theta = layout.flatten().expand(2, -1)
    assert record_statistics(layout, theta, x_for(8, 3)).keys() == {"4.running_mean", "4.running_var"}
    without = Layout(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5, track_running_stats=False)))
    assert record_statistics(without, without.flatten()[None], x_for(8, 3)) == {}
    assert measure_statistics(without, without.flatten()[None], x_for(8, 3)) == {}


@both_strategies
def test_a_norm_that_is_called_twice_has_the_statistics_of_both_calls_together(strategy):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(5.0 * self.norm(self.first(x)) + 2.0)

    sampler, x = sampler_for(Twice(), num_samples=3), x_for(12, 3)
    found = record_statistics(sampler.layout, sampler.theta, x, strategy=strategy)
    for i, theta in enumerate(sampler.theta):
        weights = sampler.layout.unflatten(theta)
        once = F.linear(x, weights["first.weight"], weights["first.bias"])
        scaled = (once - once.mean(0)) / (once.var(0, correction=0) + 1e-5).sqrt()
        twice = 5.0 * (scaled * weights["norm.weight"] + weights["norm.bias"]) + 2.0
        both = torch.cat([once, twice])
        torch.testing.assert_close(found["norm.running_mean"][i], both.mean(0))
        torch.testing.assert_close(found["norm.running_var"][i], both.var(0, correction=0))


@both_strategies
def test_a_norm_that_is_not_reached_keeps_the_buffers_it_has(strategy):
    net = column()
    net[4].running_var.fill_(3.0)
    layout = Layout(net, forward=lambda net, x: net[:3](x))
    theta = layout.flatten().expand(2, -1)
    found = record_statistics(layout, theta, x_for(8, 3), strategy=strategy)
    torch.testing.assert_close(found["4.running_var"], torch.full((2, 5), 3.0))


@pytest.mark.parametrize("memory_limit", [1, 20_000, None])
def test_statistics_do_not_depend_on_the_memory_limit(memory_limit):
    sampler, x = sampler_for(column(), num_samples=7), x_for(30, 3)
    found = measure_statistics(sampler.layout, sampler.theta, x, memory_limit=memory_limit)
    torch.testing.assert_close(found, record_statistics(sampler.layout, sampler.theta, x))


@pytest.mark.parametrize("deterministic", [False, True])
def test_on_the_calibration_inputs_every_network_predicts_as_it_did_in_training(deterministic):
    posterior = spread_posterior(count=25)
    theta = posterior.sampler.centre()[None] if deterministic else draws_of(posterior, 6)
    trained = apply_many(posterior.layout, theta, posterior.calibration, batch_statistics=True)[..., 0]
    options = {"deterministic": True} if deterministic else {"num_samples": 6}
    torch.testing.assert_close(posterior.predict(posterior.calibration, **options).means, trained)


def draws_of(posterior, count):
    """The weights that answer without an rng."""
    return posterior.functions(count, torch.Generator().manual_seed(0)).theta


def test_shared_statistics_would_be_far_off_where_weights_spread_and_own_ones_are_not():
    posterior = spread_posterior(count=400)
    x, theta = posterior.calibration, draws_of(posterior, 30)
    trained = apply_many(posterior.layout, theta, x, batch_statistics=True)[..., 0]
    own = posterior.predict(x, num_samples=30).means
    recorded = record_statistics(posterior.layout, theta, x)
    averages = {name: values.mean(0) for name, values in recorded.items()}
    shared = apply_many(posterior.layout, theta, x, buffers=averages)[..., 0]
    scale = trained.std()
    torch.testing.assert_close(own, trained)
    assert (shared - trained).square().mean().sqrt() > 0.2 * scale


def test_one_example_is_predicted_as_it_is_among_others():
    posterior = spread_posterior()
    x = x_for(12, 3)
    for options in ({}, {"deterministic": True}):
        together = posterior.predict(x, **options).mean
        torch.testing.assert_close(posterior.predict(x[4:5], **options).mean, together[4:5])
    functions = posterior.functions(5, torch.Generator().manual_seed(2))
    torch.testing.assert_close(functions[3](x[:1]), functions(x)[3, :1])


def test_a_saved_posterior_keeps_its_calibration_inputs_and_its_predictions(tmp_path):
    posterior, x = spread_posterior(), x_for(6, 3)
    posterior.save(tmp_path / "p.livi")
    loaded = livi.load(tmp_path / "p.livi", regression_net())
    torch.testing.assert_close(loaded.calibration, posterior.calibration, rtol=0, atol=0)
    for options in ({}, {"deterministic": True}):
        before, after = posterior.predict(x, **options), loaded.predict(x, **options)
        torch.testing.assert_close(after.means, before.means, rtol=0, atol=0)


@pytest.mark.parametrize("form", [lambda x: (x,), lambda x: {"input": x}], ids=["tuple", "dict"])
def test_calibration_inputs_of_every_form_are_saved_and_used(tmp_path, form):
    posterior = spread_posterior()
    formed = Posterior(posterior.sampler, posterior.likelihood, calibration=form(posterior.calibration))
    formed.save(tmp_path / "p.livi")
    loaded = livi.load(tmp_path / "p.livi", regression_net())
    torch.testing.assert_close(loaded.predict(x_for(6, 3)).means, posterior.predict(x_for(6, 3)).means)


def test_saved_draws_hold_no_training_inputs_and_predict_like_frozen_ones(tmp_path):
    posterior, x = spread_posterior(), x_for(6, 3)
    posterior.save(tmp_path / "whole.livi")
    posterior.save(tmp_path / "draws.livi", draws=20)
    rows = {tuple(row) for row in posterior.calibration.tolist()}

    def holds_data(path):
        found = [value for value in tensors_in(path).values() if value.ndim == 2 and value.shape[1] == 3]
        return any(rows & {tuple(row) for row in value.tolist()} for value in found)

    assert holds_data(tmp_path / "whole.livi")
    assert not holds_data(tmp_path / "draws.livi")
    assert not any("calibration" in name for name in tensors_in(tmp_path / "draws.livi"))
    loaded = livi.load(tmp_path / "draws.livi", regression_net())
    assert loaded.calibration is None
    assert loaded.buffers["1.running_mean"].shape == (20, 5)
    torch.testing.assert_close(loaded.predict(x).means, posterior.frozen(20).predict(x).means, rtol=0, atol=0)
    mine, kept = posterior.predict(x, num_samples=20).means, loaded.predict(x, num_samples=20).means
    torch.testing.assert_close(kept.sort(0).values, mine.sort(0).values)  # the same networks in another order


def test_every_member_of_an_ensemble_predicts_with_its_own_statistics_also_after_loading(tmp_path):
    x = 3.0 + 2.0 * x_for(40, 3)
    y = x.sum(1) - 9.0 + 0.1 * torch.randn(40, generator=torch.Generator().manual_seed(0))
    fitted = livi.rivals.fit_ensemble(regression_net(), (x, y), livi.Gaussian(0.5), members=3, steps=30)
    theta = fitted.sampler.theta
    own = record_statistics(fitted.layout, theta, x)
    first = {name: own[name] for name in ("1.running_mean", "1.running_var")}
    torch.testing.assert_close({name: fitted.buffers[name] for name in first}, first)
    expected = apply_many(fitted.layout, theta, x, buffers=fitted.buffers)[..., 0]
    fitted.save(tmp_path / "e.livi")
    for posterior in (fitted, livi.load(tmp_path / "e.livi", regression_net())):
        means = posterior.predict(x, num_samples=3, rng=torch.Generator().manual_seed(1)).means
        torch.testing.assert_close(means.sort(0).values, expected.sort(0).values)
        several = posterior.predict(x, num_samples=12).means  # each member four times
        torch.testing.assert_close(several.mean(0), expected.mean(0))


def test_a_fit_calibrates_on_examples_from_all_over_the_data():
    x = torch.linspace(-3, 3, 1500)[:, None]  # in order: the first rows see one end only
    net = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    recipe = livi.Recipe(steps=2, map_steps=0, num_samples=2)
    posterior = livi.fit(net, (x, x[:, 0]), livi.Gaussian(0.5), recipe=recipe, progress=False)
    assert posterior.calibration.shape == (512, 1)
    assert abs(float(posterior.calibration.mean())) < 4 * 3**0.5 / 512**0.5
    assert len(set(posterior.calibration.flatten().tolist())) == 512


def test_a_fit_from_a_trained_convolutional_network_predicts_about_as_well_as_it():
    torch.set_default_dtype(torch.float32)
    images, labels = digits()
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )
    optimiser, rng = torch.optim.Adam(net.parameters(), 1e-2), torch.Generator().manual_seed(0)
    for _ in range(120):
        rows = torch.randperm(500, generator=rng)[:100]
        loss = F.cross_entropy(net(images[rows]), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    net.eval()
    with torch.no_grad():
        before = float(F.cross_entropy(net(images[500:]), labels[500:]))
    recipe = livi.Recipe(steps=250, num_samples=4)
    trained = (images[:500], labels[:500])
    posterior = livi.fit(net, trained, livi.Categorical(), recipe=recipe, start="net", batch_size=100, progress=False)
    after = -float(posterior.predict(images[500:], num_samples=20).log_prob(labels[500:]).mean())
    assert before < 0.6  # it has learned
    assert after < 1.2 * before


def digits():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:900]
    return torch.tensor(images / 8.0 - 1.0, dtype=torch.float32).reshape(-1, 1, 8, 8)[order], torch.tensor(labels)[
        order
    ]
