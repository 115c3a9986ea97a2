"""A time limit shortens a fit that would take longer, and leaves others as they are."""

import pytest
import torch
from torch import nn

import livi
from livi.durations import seconds
from livi.inference.measuring import _Peak, measure_step


@pytest.mark.parametrize(
    ("text", "value"),
    [(90, 90.0), ("90", 90.0), ("30 s", 30.0), ("2 minutes", 120.0), ("1.5h", 5400.0)],
)
def test_durations_are_read(text, value):
    assert seconds("budget", text) == value


@pytest.mark.parametrize("text", [0, -1.0, "soon", "1 fortnight", "", "nan", True, float("inf"), None])
def test_other_durations_are_refused(text):
    with pytest.raises(ValueError, match="budget: expected seconds above 0, or a text such as"):
        seconds("budget", text)


def problem():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=rng)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), (x, x[:, :1]), livi.Gaussian()


def test_a_budget_shortens_start_and_steps_in_proportion():
    whole = livi.plan(*problem())
    half = livi.plan(*problem(), budget=1e6)
    assert half.recipe == whole.recipe
    short = livi.plan(*problem(), budget="0.5 s")
    assert 50 <= short.recipe.steps < whole.recipe.steps
    assert short.recipe.map_steps < whole.recipe.map_steps
    least = livi.plan(*problem(), budget=1e-6)
    assert least.recipe.steps == 50


def test_steps_shorten_the_start_unless_the_recipe_names_it():
    whole = livi.plan(*problem())
    shorter = livi.plan(*problem(), steps=whole.recipe.steps // 4)
    assert shorter.recipe.map_steps == pytest.approx(whole.recipe.map_steps / 4, abs=1)
    named = livi.plan(*problem(), steps=whole.recipe.steps // 4, recipe=livi.Recipe(map_steps=777))
    assert (named.recipe.steps, named.recipe.map_steps) == (whole.recipe.steps // 4, 777)
    least = livi.plan(*problem(), budget=1e-6, recipe=livi.Recipe(map_steps=777))  # a clock is obeyed in any case
    assert least.recipe.map_steps < 777


def test_the_seconds_of_a_plan_are_those_of_its_parts():
    plan = livi.plan(*problem())
    parts = plan.recipe.map_steps * plan.seconds_per_map_step + plan.recipe.steps * plan.seconds_per_step
    assert plan.seconds == pytest.approx(parts)


def test_steps_are_the_most_that_a_budget_leaves():
    assert livi.plan(*problem(), steps=70, budget=1e6).recipe.steps == 70
    assert livi.plan(*problem(), steps=70, budget=1e-6).recipe.steps == 50
    assert livi.plan(*problem(), steps=20, budget=1e-6).recipe.steps == 20


@pytest.mark.filterwarnings("ignore")
def test_estimators_keep_within_one():
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0)).numpy()
    model = livi.LIVIRegressor(budget=1e-3, target_scale="plain", noise="constant", random_state=0).fit(x, x[:, 0])
    assert int(model.history_[-1]["step"]) == 50


@pytest.mark.filterwarnings("ignore")
def test_trials_of_models_take_their_part_of_it(monkeypatch):
    given = []

    def noted(*arguments, **options):
        given.append(options["budget"])
        return livi.fit(*arguments, **options)

    monkeypatch.setattr("livi.tables.estimators.base.fit", noted)
    x = torch.randn(70, 2, generator=torch.Generator().manual_seed(0)).numpy()
    livi.LIVIRegressor(hidden=3, steps=2, target_scale="plain", budget="50 s", random_state=0).fit(x, x[:, 0])
    assert given[:2] == pytest.approx([10.0, 10.0], abs=0.5)  # less what has gone by then
    assert 0.0 < given[2] < 50.0


def test_a_step_that_does_not_fit_into_memory_is_an_error_with_a_remedy(monkeypatch):
    plan = livi.plan(*problem(), last_layer="sampled")

    def too_much(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(plan.bound, "accumulate", too_much)
    with pytest.raises(MemoryError, match=r"expected one step to fit into memory, got .* lower batch_size"):
        measure_step(plan.bound, plan.data.first(), plan.recipe)


def test_memory_counts_samples_and_state():
    few, many = (
        livi.plan(*problem(), last_layer="sampled", recipe=livi.Recipe(num_samples=n, num_entropy_samples=2))
        for n in (2, 64)
    )
    assert many.cost.memory > few.cost.memory
    weights = sum(parameter.nbytes for parameter in few.bound.parameters())
    assert few.cost.memory > 6 * weights  # parameters and moments, twice


def test_steps_of_generators_that_autograd_differentiates_are_measured():
    class Own(livi.MLP):
        def branch(self, z):
            return super().branch(z).sin()

    plan = livi.plan(*problem(), last_layer="sampled", generator=lambda layout: Own(4, layout.num_params, hidden=(4,)))
    weights = sum(parameter.nbytes for parameter in plan.bound.parameters())
    assert plan.cost.memory > 6 * weights


def test_one_weight_vector_s_activations_are_counted_where_they_go_one_by_one():
    net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    layout, (x, y) = livi.Layout(net), (torch.randn(2000, 1), torch.randn(2000, 1))
    memory = {}
    for count, strategy in ((2, livi.Loop()), (16, livi.Loop()), (16, livi.Vmap())):
        q = livi.ImplicitPosterior(layout, livi.Affine(2, layout.num_params), livi.FixedNoise(0.1))
        bound = livi.Bound(q, livi.Gaussian(0.3), livi.Normal(1.0), num_data=2000, num_samples=count, strategy=strategy)
        memory[count, type(strategy)] = measure_step(bound, (x, y), livi.Recipe(steps=1)).memory
    activations = 2 * 2000 * 40 * 8  # what two layers of Tanh keep of one weight vector
    further = memory[16, livi.Loop] - memory[2, livi.Loop]
    assert further < 14 * 8 * 4 * layout.num_params  # the weights themselves, and what is kept of them
    assert memory[16, livi.Vmap] > 16 * activations > 4 * memory[16, livi.Loop]


def test_what_a_graph_lets_go_is_no_longer_held():
    peak, x = _Peak(torch.device("cpu")), torch.ones(1000, requires_grad=True)
    with peak.watched():
        graphs = [x.exp().sin().sum() for _ in range(3)]  # each keeps what exp gives, for itself and for sin
        assert peak.now == 3 * x.nbytes
        graphs[0].backward()
        assert peak.now == 2 * x.nbytes
        del graphs
        x.exp().sum().backward()
    assert (peak.now, peak.bytes(0)) == (0, 3 * x.nbytes)
