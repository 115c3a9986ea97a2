"""Fits that go on from a posterior, and posteriors that move to another device."""

import pytest
import torch
from torch import nn

import livi
from livi.inference import Recipe
from livi.rivals import fit_ensemble

QUICK = Recipe(steps=60, map_steps=60, map_restarts=2, num_samples=8, num_entropy_samples=2)


def network(width=5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))


def data(count=24, seed=1):
    x = torch.linspace(-1, 1, count)[:, None]
    return x, torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(seed))


def quick_fit(train=None, net=None, likelihood=None, **options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "sampled"} | options
    return livi.fit(net or network(), train or data(), likelihood or livi.Gaussian(), **options)


def draws(posterior):
    return posterior.sample(5, torch.Generator().manual_seed(9))


def state(posterior):
    parts = {"sampler": posterior.sampler, "likelihood": posterior.likelihood, "prior": posterior.prior}
    named = {f"{kind}.{name}": value for kind, part in parts.items() for name, value in part.state_dict().items()}
    return {name: value for name, value in named.items() if not name.endswith(("inputs", "targets"))}


CASES = {
    "sampled": {},
    "exact": {"last_layer": "exact"},
    "exact, learned scale": {"last_layer": "exact", "prior": livi.Normal(1.0, learned=True)},
    "mixture": {"components": 2},
    "parts": {
        "generator": lambda layout: livi.MLP.for_layout(layout, latent_dim=3),
        "noise": lambda layout: livi.DiagonalNoise(layout.num_params, 0.02),
        "prior": livi.Normal(2.0, learned=True),
        "include": "2.*",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_fit_starts_with_everything_that_was_learned(case):
    first = quick_fit(**CASES[case])
    before = draws(first)
    planned = livi.plan(network(), data(), livi.Gaussian(), start=first)
    assert planned.start == "posterior"
    assert planned.recipe.map_steps == 0
    assert planned.recipe.kl_warm_up == 0.0
    assert "the posterior that was passed" in str(planned)
    assert all(parameter.requires_grad for parameter in planned.bound.parameters())
    # A step too short to matter shows where the fit starts.
    still = Recipe(steps=1, affine_rate=1e-12, nonlinear_rate=1e-12, hyper_rate=1e-12, num_samples=8)
    same = livi.fit(network(), data(), livi.Gaussian(), start=first, recipe=still, progress=False)
    expected = state(first)
    for name, value in state(same).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(draws(same), before, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(draws(first), before, rtol=0, atol=0)  # which was not touched


@pytest.mark.parametrize("case", CASES)
def test_a_fit_that_goes_on_gets_better(case):
    first = quick_fit(**CASES[case])
    longer = livi.fit(network(), data(), livi.Gaussian(), start=first, recipe=Recipe(steps=300), progress=False)
    assert longer.history[-1]["step"] == 300
    assert {row["kl_weight"] for row in longer.history} == {1.0}
    late = sum(row["bound"] for row in longer.history[-5:]) / 5
    assert late > first.history[-1]["bound"]


def test_one_scale_of_all_weights_stays_one(tmp_path):
    first = quick_fit(**CASES["exact, learned scale"])
    first.save(tmp_path / "p.livi")
    for start in (first, livi.load(tmp_path / "p.livi", network())):
        bound = livi.plan(network(), data(), livi.Gaussian(), start=start).bound
        assert bound.likelihood.prior.log_scale is bound.prior.log_scale


def test_a_fit_goes_on_at_lower_rates_and_without_warm_up_unless_they_are_named():
    first = quick_fit()
    usual = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled").recipe
    further = livi.plan(network(), data(), livi.Gaussian(), start=first).recipe
    assert further.affine_rate == pytest.approx(0.3 * usual.affine_rate)
    assert further.kl_warm_up == 0.0
    named = Recipe(affine_rate=0.1, kl_warm_up=0.5)
    further = livi.plan(network(), data(), livi.Gaussian(), start=first, recipe=named).recipe
    assert (further.affine_rate, further.kl_warm_up) == (0.1, 0.5)


def test_more_data_may_be_fitted():
    first = quick_fit(last_layer="exact")
    more = quick_fit(data(60, seed=2), start=first, last_layer="exact")
    assert more.plan["num_data"] == 60
    assert len(more.sampler.targets) == 60


def test_a_loaded_posterior_is_a_start_too(tmp_path):
    first = quick_fit()
    first.save(tmp_path / "p.livi")
    loaded = livi.load(tmp_path / "p.livi", network())
    one, two = (quick_fit(start=start) for start in (first, loaded))
    torch.testing.assert_close(draws(one), draws(two), rtol=0, atol=0)


def test_a_fit_that_goes_on_resumes_bit_for_bit(tmp_path):
    first, path = quick_fit(), tmp_path / "c.livi"
    whole = quick_fit(start=first)

    def stop_here(row):
        if row["step"] == 50:
            raise RuntimeError("here")

    with pytest.raises(RuntimeError, match="here"):
        quick_fit(start=first, checkpoint=path, checkpoint_every=20, callbacks=[stop_here])
    torch.testing.assert_close(draws(quick_fit(start=first, checkpoint=path)), draws(whole), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"net": network(6)},
            ValueError,
            r"start: expected the parameter '0.weight' \(5, 1\), got '0.weight' \(6, 1\)",
        ),
        ({"include": "2.*"}, ValueError, "start: expected include and exclude to choose the 4 parameters"),
        (
            {"likelihood": livi.HeteroscedasticGaussian()},
            ValueError,
            "likelihood: expected Gaussian as in the posterior",
        ),
        ({"last_layer": "exact"}, ValueError, "last_layer: expected 'sampled' as in the posterior"),
        ({"prior": livi.Normal(1.0)}, ValueError, "prior: expected none, for the posterior"),
        ({"components": 3}, ValueError, "components: expected none, for the posterior"),
        ({"net": network().float()}, ValueError, "start: net: expected parameters of torch.float64"),
    ],
    ids=["network", "patterns", "likelihood", "last layer", "prior", "components", "dtype"],
)
def test_what_does_not_go_with_the_posterior_is_an_error(options, kind, message):
    with pytest.raises(kind, match=message):
        quick_fit(start=quick_fit(), **options)


def test_a_posterior_without_a_generator_is_no_start():
    ensemble = fit_ensemble(network(), data(), livi.Gaussian(), members=2, steps=5)
    with pytest.raises(TypeError, match=r"start: expected 'map', 'net' or a posterior of livi\.fit, .* got Ensemble"):
        quick_fit(start=ensemble)
    with pytest.raises(TypeError, match=r"got Ensemble"):
        quick_fit(start=quick_fit().frozen(3))
    with pytest.raises(TypeError, match=r"start: .* got int"):
        quick_fit(start=3)


# --- devices --------------------------------------------------------------------------------------


def normalised():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))


def places(posterior):
    parts = [posterior.layout.module, posterior.sampler, posterior.likelihood, posterior.prior]
    tensors = [value for part in parts for value in part.state_dict().values()]
    tensors += [*posterior.buffers.values()] + ([] if posterior.calibration is None else [posterior.calibration])
    return {tensor.device.type for tensor in tensors}


@pytest.mark.parametrize("case", ["sampled", "exact", "BatchNorm", "frozen", "ensemble"])
def test_a_posterior_moves_with_everything_that_it_holds(case):
    if case == "BatchNorm":
        posterior = quick_fit(net=normalised())
    elif case == "ensemble":
        posterior = fit_ensemble(normalised(), data(), livi.Gaussian(), members=2, steps=5)
    else:
        posterior = quick_fit(last_layer="exact" if case == "exact" else "sampled")
        posterior = posterior.frozen(3) if case == "frozen" else posterior
    posterior.predict(data()[0])
    assert posterior.to("meta") is posterior  # a device that is always there
    assert places(posterior) == {"meta"}
    assert posterior._same.kept == {}


def test_a_posterior_that_stays_predicts_the_same():
    posterior = quick_fit()
    before = posterior.predict(data()[0]).mean
    torch.testing.assert_close(posterior.to("cpu").predict(data()[0]).mean, before, rtol=0, atol=0)
    with pytest.raises(ValueError, match="device: expected one that torch can use here"):
        posterior.to("cuda:99")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_posterior_predicts_on_a_gpu_and_comes_back(last_layer):
    posterior = quick_fit(last_layer=last_layer)
    before = posterior.predict(data()[0]).mean
    there = posterior.to("cuda").predict(data()[0], num_samples=4000).mean.cpu()
    torch.testing.assert_close(there, before, atol=0.2, rtol=0.2)
    torch.testing.assert_close(posterior.to("cpu").predict(data()[0]).mean, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", [{}, {"last_layer": "exact"}, {"components": 2}], ids=str)
def test_captured_steps_are_validated_and_stopped_on_a_gpu(case, tmp_path):
    recipe = Recipe(steps=400, map_steps=60, map_restarts=2, num_samples=8, num_entropy_samples=2)
    kept = []
    options = {"device": "cuda", "recipe": recipe, "capture": True} | case
    posterior = quick_fit(
        **options,
        validation=data(10, seed=3),
        callbacks=[livi.EarlyStopping(patience=100), livi.CSVLogger(tmp_path / "fit.csv"), kept.append],
    )
    plain = quick_fit(**options)
    assert len([row for row in kept if "validation_nll" in row]) == 20
    assert posterior.history[-1]["bound"] == pytest.approx(plain.history[-1]["bound"], rel=0.05, abs=2.0)


def test_a_class_is_no_network_to_load_a_posterior_for(path):
    quick_fit().save(path)
    with pytest.raises(TypeError, match=r"net: expected a network like the one .*, got the class Linear"):
        livi.load(path, nn.Linear)


def other_network():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_network_with_other_fixed_weights_is_no_place_to_go_on(tmp_path, last_layer):
    options = {"include": "2.*", "last_layer": "sampled"}
    if last_layer == "exact":  # the last layer is integrated out, so that its own weights do not matter
        options = {"exclude": "0.bias", "last_layer": "exact"}
    path = tmp_path / "run.livi"
    first = quick_fit(**options, checkpoint=path)
    with pytest.raises(ValueError, match=r"fixed weights and buffers are those of the posterior, got others in 0\."):
        quick_fit(net=other_network(), start=first, **options)
    with pytest.raises(ValueError, match="the weights that stay fixed are others"):
        quick_fit(net=other_network(), checkpoint=path, **options)
    again = other_network()
    again.load_state_dict(first.layout.module.state_dict())
    assert quick_fit(net=again, start=first, **options).plan["num_params"] == first.plan["num_params"]


class Waves(nn.Module):
    """A network of random waves, which are buffers."""

    def __init__(self, seed):
        super().__init__()
        self.register_buffer("waves", torch.randn(1, 6, generator=torch.Generator().manual_seed(seed)))
        self.body = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        return self.body(torch.cos(x @ self.waves))


def test_a_network_with_other_buffers_than_batch_norm_s_is_no_place_to_go_on(tmp_path):
    path = tmp_path / "run.livi"
    first = quick_fit(net=Waves(0), checkpoint=path)
    with pytest.raises(ValueError, match="buffers are those of the posterior, got others in waves; give it those"):
        quick_fit(net=Waves(1), start=first)
    with pytest.raises(ValueError, match="the network's buffers hold other numbers"):
        quick_fit(net=Waves(1), checkpoint=path)
    trained = Waves(0)
    trained(torch.randn(9, 1))  # which moves the statistics of BatchNorm, that a fit does not use
    torch.testing.assert_close(draws(quick_fit(net=trained, checkpoint=path)), draws(first))
    assert quick_fit(net=trained, start=first).plan["num_params"] == first.plan["num_params"]


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_fit_does_not_go_on_with_other_weights_of_the_examples(tmp_path, last_layer):
    x, y = data()
    weighted = {"likelihood": livi.Weighted(livi.Gaussian()), "forward": livi.pass_weights, "last_layer": last_layer}
    options = weighted | {"checkpoint": tmp_path / "run.livi"}
    quick_fit(((x, torch.ones(24)), y), **options)
    said = "other examples" if last_layer == "sampled" else "examples have other weights"
    with pytest.raises(ValueError, match=said):
        quick_fit(((x, torch.full((24,), 2.0)), y), **options)


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_fit_goes_on_with_new_weights_of_the_examples(last_layer):
    x, y = data()
    options = {"likelihood": livi.Weighted(livi.Gaussian()), "forward": livi.pass_weights, "last_layer": last_layer}
    first = quick_fit(((x, torch.ones(24)), y), **options)
    again = livi.plan(network(), ((x, torch.linspace(0, 2, 24)), y), start=first, **options)
    assert again.summary()["last_layer"].startswith(last_layer)
    if last_layer == "exact":
        torch.testing.assert_close(again.bound.likelihood.counts, torch.linspace(0, 2, 24))
    torch.testing.assert_close(again.bound.likelihood.observed.obs_std(), first.likelihood.observed.obs_std())
    other = livi.Weighted(livi.StudentT())
    with pytest.raises(ValueError, match=r"expected Weighted of Gaussian as in .* got Weighted of StudentT"):
        livi.plan(network(), ((x, torch.ones(24)), y), start=first, **options | {"likelihood": other})


def test_of_a_whole_network_any_weights_may_go_on(tmp_path):
    path = tmp_path / "run.livi"
    first = quick_fit(last_layer="exact", checkpoint=path)
    torch.testing.assert_close(draws(quick_fit(net=other_network(), last_layer="exact", checkpoint=path)), draws(first))
