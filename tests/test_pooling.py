"""Several posteriors as one: equal shares, BatchNorm statistics of each, and what cannot be pooled."""

import pytest
import torch
from support.samplers import x_for
from torch import nn

import livi
from livi import ImplicitPosterior, Layout, Posterior
from livi.network.scaling import InputScaling


def network(seed=0, *, norm=False, hidden=4, activation=None):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        norms = [nn.BatchNorm1d(hidden)] if norm else []
        return nn.Sequential(nn.Linear(3, hidden), *norms, activation or nn.Tanh(), nn.Linear(hidden, 1))


def posterior_of(net, likelihood=None, *, seed=0, calibration=None, buffers=None, **options):
    layout = Layout(net, **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        sampler = ImplicitPosterior(layout, livi.MLP(5, layout.num_params, hidden=(6,)), livi.FixedNoise(0.3))
    likelihood = livi.Gaussian(0.3) if likelihood is None else likelihood
    return Posterior(sampler, likelihood, livi.Normal(1.0), calibration=calibration, buffers=buffers)


def sorted_means(posterior, x, count):
    return posterior.predict(x, num_samples=count).means.sort(0).values


@pytest.mark.parametrize("norm", [False, True])
def test_a_pool_is_the_networks_of_each_in_equal_shares(norm, tmp_path):
    x = x_for(7, 3)
    calibration = [x_for(20, 3) + shift for shift in (0.0, 5.0)] if norm else [None, None]
    parts = [posterior_of(network(seed, norm=norm), seed=seed, calibration=calibration[seed]) for seed in (0, 1)]
    pooled = livi.pool(parts, draws=9)  # rounded up
    assert pooled.sampler.num_members == pooled.plan["frozen"] == 10
    assert pooled.plan["pooled"] == 2
    each = torch.cat([part.predict(x, num_samples=5).means for part in parts])
    torch.testing.assert_close(sorted_means(pooled, x, 10), each.sort(0).values)
    pooled.save(tmp_path / "pool.livi")
    loaded = livi.load(tmp_path / "pool.livi", network(2, norm=norm))
    torch.testing.assert_close(loaded.predict(x).means, pooled.predict(x).means, rtol=0, atol=0)
    again = livi.pool([pooled, pooled], draws=20)
    torch.testing.assert_close(again.predict(x, num_samples=20).mean, pooled.predict(x, num_samples=10).mean)


def test_statistics_that_a_posterior_shares_become_those_of_its_members():
    x, parts = x_for(7, 3), []
    for seed in (0, 1):
        net = network(seed, norm=True)
        net(x_for(30, 3) * (1 + seed))  # moves its running statistics
        statistics = {name: value.clone() for name, value in net[1].named_buffers(prefix="1")}
        parts.append(posterior_of(net, seed=seed, buffers=statistics))
    each = torch.cat([part.predict(x, num_samples=5).means for part in parts])
    torch.testing.assert_close(sorted_means(livi.pool(parts, 10), x, 10), each.sort(0).values)


def trained(steps):
    """A network with BatchNorm after so many steps of the user's own."""
    net, x = network(steps, norm=True), x_for(40, 3)
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        (net(x)[:, 0] - x[:, 0]).square().mean().backward()
        optimiser.step()
    return net


BRIEF = livi.Recipe(steps=4, map_steps=4, map_restarts=1, num_samples=2, num_entropy_samples=1)


def test_networks_trained_for_different_numbers_of_steps_are_pooled():
    x = x_for(40, 3)
    options = {"start": "net", "recipe": BRIEF, "progress": False}
    fits = [livi.fit(trained(steps), (x, x[:, 0]), livi.Gaussian(0.3), **options) for steps in (3, 5)]
    each = torch.cat([fit.predict(x, num_samples=5).means for fit in fits])
    torch.testing.assert_close(sorted_means(livi.pool(fits, 10), x, 10), each.sort(0).values)


def test_a_learned_noise_is_the_mean_and_one_that_differs_much_is_said():
    def with_noise(log_std, seed):
        likelihood = livi.Gaussian()
        likelihood.log_std.data.fill_(log_std)
        return posterior_of(network(), likelihood, seed=seed)

    first, near, far = with_noise(-1.0, 0), with_noise(-1.1, 1), with_noise(-2.0, 2)
    pooled = livi.pool([first, near], 4)
    assert pooled.likelihood.log_std.item() == pytest.approx(-1.05)
    assert first.likelihood.log_std.item() == -1.0
    with pytest.warns(livi.FitWarning, match="log_std of the likelihoods differs by up to 1,"):
        livi.pool([first, far], 4)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            lambda: posterior_of(network(hidden=5)),
            r"number 2 with the same weights as the first, 0.weight \(4, 3\), got 0.weight \(5, 3\);",
        ),
        (lambda: posterior_of(network(), include="2.*"), "weights as the first, 0.weight .*, got 2.weight"),
        (
            lambda: posterior_of(network().float()),
            "number 2 with the same device and dtype.*float64, got cpu .*float32",
        ),
        (
            lambda: posterior_of(network(activation=nn.Softplus())),
            r"number 2 with the same layers as the first, 1 Tanh\(\), got 1 Softplus\(beta=1.0, threshold=20.0\);",
        ),
        (lambda: posterior_of(network(), scaling=InputScaling([1.0], [2.0])), "standardisation of inputs"),
        (
            lambda: posterior_of(network(), livi.Gaussian(0.4)),
            "with the likelihood of the first, Gaussian with log_std=-1.20.*, got Gaussian with log_std=-0.91.*; pool",
        ),
        (
            lambda: posterior_of(network(), livi.Gaussian(0.3, learned=True)),
            "first, Gaussian with learned=None, got Gaussian with learned=True; pool",
        ),
        (lambda: posterior_of(network(), livi.StudentT()), "first, Gaussian, got StudentT; pool"),
        (
            lambda: posterior_of(network(), livi.Gaussian(0.3).standardised(1e5 + 10 * x_for(20))),
            "first, Gaussian with centre=None, got Gaussian with centre=10000",
        ),
    ],
)
def test_what_differs_is_refused(other, message):
    with pytest.raises(ValueError, match=message):
        livi.pool([posterior_of(network()), other()], 4)


def test_other_fixed_weights_are_refused():
    parts = [posterior_of(network(seed), include="2.*") for seed in (0, 1)]
    with pytest.raises(ValueError, match=r"number 2 with the fixed weights of the first, got another '0\.weight'"):
        livi.pool(parts, 4)
    same = [posterior_of(network(), include="2.*", seed=seed) for seed in (0, 1)]
    assert livi.pool(same, 4).sampler.num_members == 4


def test_other_outputs_are_named_before_the_noise_that_has_their_shape():
    def of_outputs(count):
        net = nn.Linear(3, count, dtype=torch.float64)
        return posterior_of(net, livi.Gaussian().started_from(x_for(20, count)))

    with pytest.raises(ValueError, match=r"number 2 with the same weights .*\(1, 3\), got weight \(2, 3\);"):
        livi.pool([of_outputs(1), of_outputs(2)], 4)


def test_a_noise_for_each_output_and_one_for_all_are_refused_by_their_shapes():
    both = [livi.Gaussian(), livi.Gaussian().started_from(x_for(20, 2))]
    parts = [posterior_of(nn.Linear(3, 2, dtype=torch.float64), each) for each in both]
    with pytest.raises(ValueError, match=r"Gaussian with log_std.shape=\(\), got Gaussian with log_std.shape=\(2,\);"):
        livi.pool(parts, 4)


def test_a_pool_says_of_its_fits_what_is_true_of_all_of_them():
    parts = [posterior_of(network(seed), seed=seed) for seed in (0, 1)]
    common = {"num_data": 60, "recipe": {"temperature": 0.5}, "inputs": "(B, 3)"}
    for part, steps in zip(parts, (10, 20), strict=True):
        part.plan = common | {"recipe": {"temperature": 0.5, "steps": steps}, "seconds_per_step": steps}
    pooled = livi.pool(parts, 4)
    assert pooled.plan == common | {"frozen": 4, "pooled": 2}
    assert pooled.temperature == 0.5
    assert pooled.prior is parts[0].prior
    assert not any(parameter.requires_grad for parameter in pooled.sampler.parameters())
    parts[1].plan["num_data"] = 50
    with pytest.warns(
        livi.FitWarning, match="number 2 was fitted to 50 examples and the first to 60; .* the same data"
    ):
        assert "num_data" not in livi.pool(parts, 4).plan


def test_a_posterior_alone_is_no_list_of_them():
    with pytest.raises(
        TypeError, match=r"expected a list of livi\.Posterior, got a Posterior alone; pass \[posterior, \.\.\.\]"
    ):
        livi.pool(posterior_of(network()))


def scaled_by(factor):
    return lambda net, x: factor * net(x)


def squares(outputs, targets):
    return -(outputs[..., 0] - targets).square()


def distances(outputs, targets):
    return -(outputs[..., 0] - targets).abs()


class Judged(livi.FunctionLikelihood):
    """With a second function beside the one that every such likelihood has."""

    def __init__(self, function, also):
        super().__init__(function)
        self.also = also


@pytest.mark.parametrize(
    ("functions", "got"),
    [
        ((scaled_by(1.0), scaled_by(2.0)), "got the same with other values in it"),
        ((scaled_by(1.0), lambda net, x: net(-x)), r"scaled_by.*<lambda>, got .*<lambda>"),
        ((scaled_by(1.0), None), "got none"),
        ((None, scaled_by(1.0)), "none, got scaled_by"),
    ],
)
def test_networks_that_are_called_differently_are_refused(functions, got):
    parts = [posterior_of(network(seed), forward=forward) for seed, forward in enumerate(functions)]
    with pytest.raises(ValueError, match=f"number 2 with the forward= of the first, .*{got}.*; pass the same function"):
        livi.pool(parts, 4)


@pytest.mark.parametrize(
    ("first", "other", "name"),
    [
        (livi.FunctionLikelihood(squares), livi.FunctionLikelihood(distances), "function"),
        (Judged(squares, squares), Judged(squares, distances), "also"),
        (
            livi.Weighted(livi.FunctionLikelihood(squares)),
            livi.Weighted(livi.FunctionLikelihood(distances)),
            "base.function",
        ),
    ],
)
def test_likelihoods_of_different_functions_are_refused(first, other, name):
    message = f"with the likelihood's {name} of the first, squares, got distances; pass the same function"
    with pytest.raises(ValueError, match=message):
        livi.pool([posterior_of(network(), first), posterior_of(network(1), other)], 4)


def test_the_same_lines_written_anew_for_each_fit_are_one_function():
    parts = [
        posterior_of(
            network(seed),
            livi.FunctionLikelihood(lambda outputs, targets: squares(outputs, targets)),
            forward=scaled_by(2.0),
        )
        for seed in (0, 1)
    ]
    assert livi.pool(parts, 4).sampler.num_members == 4


@pytest.mark.parametrize("given", [[], [network()]])
def test_what_is_no_posterior_is_refused(given):
    with pytest.raises(TypeError, match=r"one or more livi\.Posterior, got"):
        livi.pool(given)
