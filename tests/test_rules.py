"""The rules: choices by sizes alone, the same on every machine and at every load."""

import itertools
import math
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.inference import begin
from livi.inference.begin import spread_out
from livi.inference.rules import Size, default_components, default_noise, default_recipe, from_trained
from livi.model.defaults import PART, default_prior
from livi.network import Layout, multiplications

QUICK = livi.Recipe(num_samples=2, map_restarts=1)
SHORT = livi.Recipe(num_samples=2, map_restarts=1, map_steps=0)


def tabular(width=16, inputs=4, outputs=1):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)
    )


def convolutions():
    return nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 3), nn.Flatten(), nn.Linear(6, 1))


def table(count=60, inputs=4):
    x = torch.randn(count, inputs, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1)


class Transformer(nn.Module):
    def __init__(self, tokens=20, width=16):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.body = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)).mean(1))


def sentences(count):
    tokens = torch.randint(20, (count, 12), generator=torch.Generator().manual_seed(0))
    return tokens, (tokens[:, 0] > 9).long()


def sizes(layout=None, **options):
    layout = layout or Layout(tabular())
    return Size(layout, **{"num_data": 60, "steps_per_epoch": 1, "work": 60 * layout.num_params} | options)


def chosen(plan):
    """What must not depend on the machine's speed."""
    facts = plan.summary()
    timed = {"seconds_per_step", "seconds_per_map_step", "memory_bytes"}  # measured, and nothing is chosen by them
    return {name: value for name, value in facts.items() if name not in timed} | {"batch": len(plan.data.first()[1])}


class Clock:
    """One that jumps by more and more, forwards."""

    def __init__(self, jump):
        self.now, self.jumps = 0.0, itertools.count(1)
        self.jump = jump

    def __call__(self):
        self.now += self.jump * next(self.jumps)
        return self.now


@pytest.mark.parametrize(
    ("make", "data", "likelihood"),
    [
        (tabular, table(20), livi.Gaussian()),
        (Transformer, sentences(20), livi.Categorical()),
        (convolutions, table(20), livi.Gaussian()),
    ],
    ids=["table", "transformer", "convolutions"],
)
def test_no_clock_decides_what_is_planned(monkeypatch, make, data, likelihood):
    torch.manual_seed(0)
    net, plans = make(), []
    for jump in (1e-9, 1e6):
        monkeypatch.setattr(time, "perf_counter", Clock(jump))
        plans.append(livi.plan(net, data, likelihood, last_layer="sampled"))
    assert chosen(plans[0]) == chosen(plans[1])
    assert plans[0].seconds_per_step < plans[1].seconds_per_step


@pytest.mark.parametrize("width", [4, 16])
def test_samples_for_each_component_do_not_shrink_with_components(width):
    layout = Layout(tabular(width))
    size = sizes(layout, work=1e6)
    alone, several = default_recipe(size), default_recipe(size, 5)
    assert several.num_samples == alone.num_samples
    assert several.num_entropy_samples == alone.num_entropy_samples


@pytest.mark.parametrize("components", [2, 3, 5, 8])
def test_a_mixture_of_large_networks_takes_as_many_gradients_as_an_ensemble(components):
    size = sizes(Layout(tabular(80)), work=1e6, steps_per_epoch=100, classes=True)
    alone, recipe = default_recipe(size), default_recipe(size, components)
    spent = components * (recipe.map_steps + recipe.steps * recipe.num_samples)
    assert spent == pytest.approx(max(5, components) * alone.map_steps, rel=1e-3)
    assert recipe.num_samples * components <= 8
    assert alone.map_steps * 3 / 11 <= recipe.map_steps < alone.map_steps


def test_a_mixture_of_few_examples_is_not_fitted_for_less_than_the_fewest_steps():
    recipe = default_recipe(sizes(Layout(tabular(80)), work=1e6, steps_per_epoch=1), 5)
    assert (recipe.map_steps, recipe.steps) == (600, 600)


@pytest.mark.parametrize(
    ("width", "facts", "expected"),
    [
        (80, {}, 5),
        (16, {}, 1),
        (80, {"num_data": 4_999}, 1),
        (80, {"num_data": 100, "labels": 50}, 5),
        (80, {"classes": False}, 1),
        (80, {"gram": 1e6}, 1),
    ],
    ids=["large", "middle", "few examples", "texts", "numbers", "exact last layer"],
)
def test_a_mixture_is_the_default_of_large_classifiers_with_many_examples(width, facts, expected):
    size = sizes(Layout(tabular(width)), work=1e6, **{"num_data": 5_000, "classes": True} | facts)
    assert default_components(size) == expected


def test_labels_are_counted_one_by_one():
    net = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8), nn.Flatten(1), nn.Unflatten(1, (8, -1)))
    x = torch.randint(0, 8, (12, 5))
    assert Size.of(livi.Problem.of(net, (x, x), livi.Categorical())).labels == 5
    weighted = {"likelihood": livi.Weighted(livi.Categorical()), "forward": livi.pass_weights}
    assert Size.of(livi.Problem.of(net, ((x, torch.ones(12)), x), **weighted)).labels == 5
    many = (torch.rand(12, 3), torch.rand(12, 4).round())
    assert Size.of(livi.Problem.of(nn.Linear(3, 4), many, livi.Multilabel())).labels == 1


def test_a_mixture_by_rule_only_where_its_parts_are_left_open():
    x = torch.randn(5_000, 6)
    data, net = (x, (x[:, 0] > 0).long()), nn.Sequential(nn.Linear(6, 100), nn.Tanh(), nn.Linear(100, 50), nn.ReLU())
    net.append(nn.Linear(50, 2))

    def components(**options):
        return livi.plan(net, data, livi.Categorical(), steps=5, **options).bound.family.num_components

    assert components() == components(prior=livi.Normal(0.5)) == 5
    assert components(noise=lambda layout: livi.RelativeNoise.for_layout(layout, 0.1)) == 5
    assert components(components=2) == 2
    assert components(start="net") == components(noise=livi.FixedNoise(0.1)) == 1
    assert components(generator=lambda layout: livi.MMNN.for_layout(layout)) == 1
    assert components(recipe=livi.Recipe(num_samples=2)) == components(components=1) == 1


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
def test_a_mixture_is_planned_with_as_many_samples_for_each_component(last_layer):
    options = {"last_layer": last_layer, "steps": 5}
    one, three = (livi.plan(tabular(5), table(), livi.Gaussian(), components=k, **options) for k in (1, 3))
    assert three.recipe.num_samples == one.recipe.num_samples
    assert three.bound.num_samples == 3 * one.bound.num_samples
    assert three.bound.num_entropy_samples == 3 * one.bound.num_entropy_samples
    assert three.recipe.map_restarts >= 3


@pytest.mark.parametrize("width", [4, 16])
def test_more_work_means_fewer_samples_and_never_too_few(width):
    layout = Layout(tabular(width))
    counts = [default_recipe(sizes(layout, work=10.0**power)).num_samples for power in range(3, 10)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 8
    assert all(count % 2 == 0 for count in counts)  # antithetic pairs
    assert default_recipe(sizes(layout, work=1e3, one_by_one=True)).num_samples <= 16
    assert default_recipe(sizes(layout, work=1e3, one_by_one=True, gram=1e3)).num_samples <= 16


def test_a_small_transformer_is_planned_by_counted_work_with_few_samples_in_minibatches():
    net = Transformer()
    layout = Layout(net)
    assert 1_000 < layout.num_params < 5_000
    tokens, labels = sentences(1000)
    work = multiplications(layout, tokens[:8]) / 8
    assert work > 5 * layout.num_params  # weights are used at each of 12 positions
    plan = livi.plan(net, (tokens, labels), livi.Categorical())
    assert len(plan.data.first()[1]) < 300  # 2 million multiplications a pass at most, and not the whole 1000
    assert plan.data.steps_per_epoch > 1
    assert plan.recipe.num_samples <= 64
    assert plan.recipe.num_samples * work * len(plan.data.first()[1]) < 2e8
    few = livi.plan(net, (tokens[:20], labels[:20]), livi.Categorical())
    assert few.data.steps_per_epoch == 1


def test_all_examples_are_one_batch_where_a_pass_over_them_is_cheap():
    net = tabular(5)
    assert livi.plan(net, table(1500), livi.Gaussian(), last_layer="sampled", recipe=QUICK).data.steps_per_epoch == 1
    many = livi.plan(net, table(3000), livi.Gaussian(), last_layer="sampled", recipe=QUICK)
    assert many.data.steps_per_epoch == math.ceil(3000 / 256)


@pytest.mark.parametrize("num_data", [None, 60])
def test_a_plan_opens_a_loader_once(monkeypatch, num_data):
    opened = []
    iterate = DataLoader.__iter__
    monkeypatch.setattr(DataLoader, "__iter__", lambda self: [opened.append(self), iterate(self)][1])
    x, y = table()
    loader = DataLoader(TensorDataset(x, (y > 0).long()), batch_size=20, shuffle=True)
    plan = livi.plan(tabular(outputs=2), loader, livi.Categorical(), recipe=QUICK, num_data=num_data)
    assert plan.data.num_data == 60
    assert opened == [loader]


# --- how wide -------------------------------------------------------------------------------------


def test_a_relative_spread_makes_each_tensor_vary_in_proportion_to_its_size():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 2))
    with torch.no_grad():
        net[0].weight.mul_(30.0)
        net[4].bias.zero_()
    x = torch.randn(30, 40, generator=torch.Generator().manual_seed(0))
    plan = livi.plan(net, (x, (x[:, 0] > 0).long()), livi.Categorical(), start="net", steps=10)
    assert plan.layout.num_params > 5000
    assert plan.recipe.relative_spread
    begun = begin(plan, seed=0)
    generator, noise = plan.bound.family.generators[0], plan.bound.family.noises[0]
    z = torch.randn(400, generator.latent_dim, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        made = generator(z)
    for slot in plan.layout.slots:
        part = slice(slot.start, slot.stop)
        size = max(float(begun.theta[0, part].square().mean().sqrt()), 0.01)
        width = float(made[:, part].var(0).mean().sqrt())
        assert width == pytest.approx(plan.recipe.spread * size, rel=0.2)
        floor = 1e-3 if len(slot.shape) > 1 else 0.1
        own = float(begun.theta[0, part].square().mean().sqrt())
        torch.testing.assert_close(noise.std()[part], torch.full((slot.numel,), 0.2 * max(own, floor)))
    assert float((made.mean(0) - begun.theta[0]).abs().max()) < plan.recipe.spread * float(begun.theta.abs().max())


def test_an_absolute_spread_is_the_same_for_all_weights_and_may_be_narrowed():
    plan = livi.plan(tabular(), table(), livi.Gaussian(), last_layer="sampled", recipe=SHORT)
    begun = begin(plan, seed=0)
    generator = plan.bound.family.generators[0]
    z = torch.randn(2000, generator.latent_dim, generator=torch.Generator().manual_seed(1))
    for factor in (1.0, 0.25):
        spread_out(plan, begun.theta, factor)
        with torch.no_grad():
            widths = torch.stack([part.mean() for part in generator(z).var(0).split(plan.layout.group_sizes)]).sqrt()
        torch.testing.assert_close(widths, torch.full_like(widths, factor * plan.recipe.spread), rtol=0.3, atol=0.0)


# --- which model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [4, 16, 90], ids=["small", "middle", "large"])
def test_the_prior_of_the_network_is_the_same_whether_its_last_layer_is_sampled_or_exact(width):
    torch.manual_seed(0)
    net = tabular(width)
    sampled, exact = (
        livi.plan(net, table(), livi.Gaussian(), last_layer=way, recipe=SHORT) for way in ("sampled", "exact")
    )
    layout = sampled.layout
    scales = sampled.bound.prior.scale().expand(layout.num_params)
    torch.testing.assert_close(scales, default_prior(layout, classes=False).scale().expand(layout.num_params))
    split = layout.num_params - width - 1
    torch.testing.assert_close(exact.bound.prior.scale().expand(split), scales[:split])
    torch.testing.assert_close(exact.bound.likelihood.prior.scale().expand(width + 1), scales[split:])


def test_the_prior_is_wider_in_narrow_layers_and_in_the_last_layer_of_a_classifier():
    layout = Layout(tabular(outputs=3))
    for classes in (False, True):
        scale = default_prior(layout, classes=classes).scale()
        for slot in layout.slots:
            gain = 8.0 if classes and slot in layout.groups[-1].slots else 3.0
            expected = max(1.0, gain / math.sqrt(slot.fan_in))
            torch.testing.assert_close(scale[slot.start : slot.stop], torch.full((slot.numel,), expected))


class Written(nn.Module):
    """A classifier whose layers are made in one order or the other, and run in one."""

    def __init__(self, *order):
        super().__init__()
        layers = {"body": nn.Linear(6, 90), "head": nn.Linear(90, 3)}
        for name in order:
            setattr(self, name, layers[name])

    def forward(self, x):
        return self.head(self.body(x).tanh())


def test_the_prior_does_not_depend_on_the_order_in_which_a_constructor_makes_the_layers():
    x, y = torch.randn(40, 6), torch.arange(40) % 3
    for order in (("body", "head"), ("head", "body")):
        problem = livi.Problem.of(Written(*order), (x, y), livi.Categorical())
        scale = problem.prior.scale()
        found = {slot.name: float(scale[slot.start]) for slot in problem.layout.slots}
        expected = {"body.weight": 3 / math.sqrt(6), "body.bias": 3.0, "head.weight": 1.0, "head.bias": 8.0}
        assert found == pytest.approx(expected)


def test_the_prior_of_a_part_does_not_depend_on_which_other_weights_are_fixed():
    torch.manual_seed(0)
    for width in (16, 90):
        net = nn.Sequential(nn.Linear(6, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 3))
        expected = {"3.weight": PART / math.sqrt(width), "3.bias": PART / math.sqrt(width), "1.bias": 1.0}
        for include in ("3.*", "*.bias", ["3.*", "1.*"], "3.bias"):
            layout = Layout(net, include=include)
            scale = default_prior(layout, classes=True).scale()
            assert len(scale) == layout.num_params
            for slot in layout.slots:
                wanted = expected.get(slot.name)
                if wanted is not None:
                    torch.testing.assert_close(scale[slot.start : slot.stop], torch.full((slot.numel,), wanted))
    backbone = nn.Sequential(nn.Linear(6, 90), nn.ReLU(), nn.Linear(90, 3))
    for weight in backbone[0].parameters():
        weight.requires_grad_(False)
    torch.testing.assert_close(
        default_prior(Layout(backbone), classes=True).scale(), torch.full((273,), PART / math.sqrt(90))
    )


@pytest.mark.parametrize(("width", "scale"), [(4, 1.0), (16, 1.0), (90, 3.0 / math.sqrt(90)), (1000, 0.2)])
def test_a_part_of_a_regression_has_the_prior_of_the_whole_network(width, scale):
    for include in ("4.*", ["2.*", "4.*"]):
        layout = Layout(tabular(width), include=include)
        found = default_prior(layout, classes=False).scale()
        torch.testing.assert_close(found, torch.full((layout.num_params,), scale))


def test_all_weight_matrices_are_the_whole_network():
    net = tabular(outputs=3)
    layout = Layout(net, exclude="0.bias")
    whole = default_prior(Layout(net), classes=True).scale()
    rest = [slot for slot in Layout(net).slots if slot.name != "0.bias"]
    torch.testing.assert_close(
        default_prior(layout, classes=True).scale(), torch.cat([whole[slot.start : slot.stop] for slot in rest])
    )


def test_a_plan_says_the_standard_deviations_of_its_prior():
    torch.manual_seed(0)
    net, data = tabular(90), table()

    def model(prior):
        plan = livi.plan(net, data, livi.Gaussian(), last_layer="sampled", prior=prior, recipe=SHORT)
        return next(line for line in str(plan).splitlines() if line.startswith("model")).split("likelihood, ")[1]

    assert model(None) == "Normal prior of std 0.316 to 1"
    assert model(livi.Normal(0.5)) == "Normal prior of std 0.5"
    assert model(livi.Laplace(1.0)) == "Laplace prior of std 1.41"
    assert model(livi.Normal(2.0, learned=True)) == "Normal prior of std 2 at first, learned"
    assert model(livi.FunctionPrior(lambda theta: -theta.square().sum(-1))) == "FunctionPrior prior"


@pytest.mark.parametrize(
    ("width", "classes", "kind"),
    [
        (4, False, livi.FixedNoise),
        (4, True, livi.FixedNoise),
        (16, False, livi.DiagonalNoise),
        (16, True, livi.RelativeNoise),
        (90, False, livi.RelativeNoise),
        (90, True, livi.RelativeNoise),
    ],
)
def test_noise_is_chosen_by_size_and_kind_of_targets(width, classes, kind):
    assert type(default_noise(sizes(Layout(tabular(width)), classes=classes))) is kind


@pytest.mark.parametrize("gram", [None, 1e9])
def test_weights_start_nearer_together_for_more_rows_than_a_full_batch(gram):
    starts = [default_noise(sizes(num_data=rows, gram=gram)).std().mean().item() for rows in (60, 2048, 8192)]
    assert starts == pytest.approx([0.03, 0.03, 0.015])


@pytest.mark.parametrize("steps", [100, 600, 1000, 5000])
def test_a_trained_network_needs_no_start_and_fewer_steps(steps):
    recipe = from_trained(livi.Recipe(steps=steps), sizes())
    assert (recipe.map_steps, recipe.map_restarts) == (0, 1)
    assert recipe.steps == {100: 100, 600: 600, 1000: 600, 5000: 2500}[steps]


def test_a_step_of_a_part_of_a_classifier_has_at_most_64_samples_however_cheap():
    layout = Layout(tabular(16), include="2.*")
    cheap = [default_recipe(sizes(layout, work=work, classes=True)).num_samples for work in (1.0, 1e6, 1e9)]
    assert cheap[0] <= 64
    assert cheap[0] > cheap[2]
