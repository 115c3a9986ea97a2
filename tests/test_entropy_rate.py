"""The entropy in every few steps only, with that weight: the same on average, and its value where it is logged."""

import math

import pytest
import torch
from torch import nn

import livi
from livi.family.entropy.estimate import gaussian_constants
from livi.inference import Recipe, Trainer

QUICK = Recipe(steps=60, map_steps=0, num_samples=8, num_entropy_samples=2)


def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    return net, (x, (x[:, 0] * x[:, 1] > 0).long()), livi.Categorical()


def trainer(every, **options):
    recipe = livi.inference.Recipe(**{name: getattr(QUICK, name) for name in QUICK.named} | {"entropy_every": every})
    plan = livi.plan(*problem(), recipe=recipe, noise=livi.LearnedNoise(0.1), **options)
    return Trainer(plan.bound, plan.data, plan.recipe)


@pytest.mark.parametrize("every", [1, 2, 3, 5, 7])
def test_the_weights_are_one_on_average(every):
    recipe = Recipe(entropy_every=every)
    weights = [recipe.entropy_weight(step) for step in range(10 * every)]
    assert sum(weights) == len(weights)
    assert sum(weight > 0 for weight in weights) == 10


@pytest.mark.parametrize("every", [2, 5])
def test_gradients_add_up_to_those_of_steps_that_all_have_it(every, monkeypatch):
    """An entropy that does not depend on z, so that nothing is left to chance; the weights stand still."""

    def summed(one):
        total = {}

        def add(*_, **__):
            for name, parameter in one.bound.named_parameters():
                if parameter.grad is not None:
                    total[name] = total.get(name, 0.0) + parameter.grad.double()

        monkeypatch.setattr(one.optimiser, "step", add)
        one.run()
        return total

    affine = {"generator": livi.Affine.for_layout}
    ours, theirs = summed(trainer(every, **affine)), summed(trainer(1, **affine))
    assert ours.keys() == theirs.keys()
    # The weight of the KL term rises during a fit, so an entropy taken later counts a little more.
    for name, value in ours.items():
        assert float((value - theirs[name]).norm() / theirs[name].norm()) < 0.15 * every / 5, name
    flat = trainer(every, **affine), trainer(1, **affine)
    for one in flat:
        monkeypatch.setattr(one.recipe.__class__, "kl_weight", lambda *_: 1.0)
    ours, theirs = (summed(one) for one in flat)
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-5, atol=1e-6)


def test_a_costly_value_is_computed_at_the_first_row_then_at_every_fiftieth_step_and_repeated():
    one = trainer(4, entropy=livi.Lanczos(num_probes=2))
    seen = []
    inner = one.bound.accumulate

    def watch(*args, entropy="value", **kwargs):
        terms = inner(*args, entropy=entropy, **kwargs)
        seen.append((entropy, len(terms.reports)))
        return terms

    one.bound.accumulate = watch
    one.run()
    assert [part for part, _ in seen[:10]] == ["none"] * 3 + ["gradient"] + ["none"] * 3 + ["gradient", "none", "value"]
    assert all(bool(reports) == (part != "none") for part, reports in seen)
    assert [step for step, (part, _) in enumerate(seen, start=1) if part == "value"] == [10, 50, 60]
    entropies = [row["entropy"] for row in one.history]
    assert entropies[:4] == [entropies[0]] * 4
    assert len(set(entropies)) == 3
    for row in one.history:
        assert math.isfinite(row["bound"])
        assert row["bound"] == pytest.approx(row["log_likelihood"] + row["log_prior"] + row["entropy"], rel=1e-6)


def test_a_value_that_comes_with_its_gradient_is_in_every_row():
    one = trainer(1)
    one.run()
    assert len({row["entropy"] for row in one.history}) == len(one.history) == 6


def test_estimates_are_counted_whatever_they_leave_out():
    one = trainer(4, entropy=livi.Lanczos(num_probes=2))
    seen = []
    inner = one.bound.accumulate
    one.bound.accumulate = lambda *args, **kwargs: (seen.append(kwargs["entropy"]), inner(*args, **kwargs))[1]
    one.run()
    assert float(one.estimated) == sum(part != "none" for part in seen)


def _gradients(value, parameters):
    found = torch.autograd.grad(value, parameters, allow_unused=True)  # the Jacobian does not see the last bias
    return [gradient for gradient in found if gradient is not None]


def test_lanczos_without_its_value_has_the_same_gradient_and_report():
    torch.manual_seed(0)
    generator, z, noise = livi.MLP(3, 9, hidden=(5,)), torch.randn(4, 3), torch.tensor(0.3, requires_grad=True)
    found = []
    for estimator in (livi.Lanczos(num_probes=2), livi.Lanczos(num_probes=2).without_value()):
        estimate = estimator(generator, z, noise, torch.Generator().manual_seed(3))
        found.append((estimate, _gradients(estimate.nats.sum(), [*generator.parameters(), noise])))
    (whole, gradient), (bare, same) = found
    for a, b in zip(gradient, same, strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(whole.report.residual, bare.report.residual)
    torch.testing.assert_close(bare.nats, gaussian_constants(noise, 9).expand(4))
    with torch.no_grad():  # nobody wants a gradient, so a value it must be
        value = livi.Lanczos(num_probes=2).without_value()(generator, z, noise, torch.Generator().manual_seed(3))
    torch.testing.assert_close(value.nats, whole.nats)


def test_a_recorded_form_without_questions_has_the_same_gradient():
    torch.manual_seed(0)
    generator, z, noise = livi.MLP(6, 20, hidden=(8,)), torch.randn(3, 6), torch.tensor(0.2, requires_grad=True)
    recorded = livi.Lanczos(num_probes=2, tolerance=1e-4, max_iterations=6).captured(100)
    found = []
    for estimator in (recorded, recorded.without_value()):
        estimate = estimator(generator, z, noise, torch.Generator().manual_seed(3))
        found.append((estimate.report, _gradients(estimate.nats.sum(), [*generator.parameters(), noise])))
    (whole, gradient), (bare, same) = found
    assert whole.products == bare.products
    for a, b in zip(gradient, same, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_fit_that_takes_it_now_and_then_goes_on_from_a_checkpoint(tmp_path):
    options = {"recipe": Recipe(steps=60, map_steps=20, num_samples=8, entropy_every=5), "progress": False}
    net, data, likelihood = problem()
    whole = livi.fit(net, data, likelihood, **options)
    path = tmp_path / "c.livi"
    livi.fit(net, data, likelihood, checkpoint=path, checkpoint_every=20, steps=None, **options)
    again = livi.fit(net, data, likelihood, checkpoint=path, **options)
    assert torch.equal(
        again.sample(2, torch.Generator().manual_seed(0)), whole.sample(2, torch.Generator().manual_seed(0))
    )


def test_a_matrix_generator_may_leave_its_last_bias_to_the_offset():
    layout = livi.Layout(nn.Linear(30, 20))
    with_bias = livi.MMNN.for_layout(layout, budget=4.0, offset=True)
    without = livi.MMNN.for_layout(layout, budget=3.0, offset=True, last_bias=False)
    assert with_bias.stack.shapes == without.stack.shapes
    count = [sum(p.numel() for p in one.parameters()) for one in (with_bias, without)]
    assert count[0] - count[1] == math.prod(without.stack.shapes[-1])
    without.init_around(torch.arange(620.0), 0.1)
    centre = without(torch.randn(4000, without.latent_dim, generator=torch.Generator().manual_seed(0))).mean(0)
    torch.testing.assert_close(centre, torch.arange(620.0), atol=0.02, rtol=0)
    with pytest.raises(ValueError, match="last_bias: expected True without an offset"):
        livi.MMNN((2, 2), 12, hidden=((3, 3),), last_bias=False)
