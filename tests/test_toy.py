"""The toy experiment: its data, its reference, its distance, and a short run of everything."""

import importlib.util
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy import stats

from livi.experiments.toy import METHODS, as_tensors, evidence_bound, fit_toy, method_named, network, run
from livi.experiments.toy_bench import KIND, QUICK, Config, all_methods, bench, default_methods, text
from livi.experiments.toy_data import NAMES, OBS_STD, SIZES, reference, toy_data, wasserstein2
from livi.family.implicit import ImplicitPosterior
from livi.posterior.posterior import Posterior
from livi.report.toy import draw
from livi.rivals import fit_ensemble

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "make_nuts_reference.py"


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


# --- data and network -----------------------------------------------------------------------------


def test_data_set_a_is_a_sine_with_a_gap():
    data = toy_data("A")
    assert data.x.shape == data.y.shape == (70,)
    assert ((data.x > -4) & (data.x < -2)).sum() == ((data.x > 2) & (data.x < 4)).sum() == 35
    residuals = data.y - np.sin(1.2 * data.x)
    assert abs(residuals.std() - OBS_STD) < 5 * OBS_STD / math.sqrt(140)
    np.testing.assert_allclose(data.grid[data.gap], np.arange(-2, 2.5, 0.5))


def test_data_set_b_is_the_published_function_scaled_to_one():
    data = toy_data("B")
    assert data.x.max() == 1.0
    assert ((data.x < 0).sum(), (data.x > 0).sum()) == (38, 32)
    assert np.abs(data.x).min() > 0.61 / 1.28
    spread = []
    for largest in np.linspace(1.2, 1.28, 161):  # of 32 uniform points on [0.61, 1.28]: somewhere below the end
        x = largest * data.x
        spread.append((data.y - (x + 0.8 * np.sin(2 * np.pi * x) + 0.8 * np.sin(4 * np.pi * x))).std())
    assert abs(min(spread) - OBS_STD) < 5 * OBS_STD / math.sqrt(140)


def test_the_grid_reaches_beyond_the_data_on_both_sides():
    for name in NAMES:
        data = toy_data(name)
        assert len(data.grid) == 25
        assert data.grid[0] < data.x.min()
        assert data.grid[-1] > data.x.max()
        assert 5 < data.gap.sum() < 15


def test_another_seed_gives_other_data_and_another_network():
    assert not np.array_equal(toy_data("A", 1).x, toy_data("A").x)
    assert not torch.equal(network(0)[0].weight, network(1)[0].weight)
    assert torch.equal(network(0)[0].weight, network(0)[0].weight)
    assert sum(parameter.numel() for parameter in network(0).parameters()) == 105


def test_an_unknown_data_set_is_refused():
    with pytest.raises(ValueError, match="data: expected one of A, B, got 'C'"):
        toy_data("C")


# --- the distance ---------------------------------------------------------------------------------


def test_w2_of_samples_is_that_of_sorted_samples():
    first, second = np.random.default_rng(0).normal(size=(2, 50, 4))
    second = 2 * second + 1
    brute = np.sqrt(np.square(np.sort(first, 0) - np.sort(second, 0)).mean(0)).mean()
    assert wasserstein2(first, second, num_levels=50) == pytest.approx(brute, rel=1e-12)
    assert wasserstein2(torch.as_tensor(first), second, num_levels=50) == pytest.approx(brute, rel=1e-12)


@pytest.mark.parametrize(("shift", "scale"), [(1.0, 1.0), (0.0, 2.0), (0.7, 0.2)])
def test_w2_of_gaussians_has_its_closed_form(shift, scale):
    levels = (np.arange(20_000) + 0.5) / 20_000
    unit = stats.norm.ppf(levels)[:, None]
    exact = math.hypot(shift, scale - 1)
    assert wasserstein2(unit, shift + scale * unit, num_levels=20_000) == pytest.approx(exact, rel=1e-3)
    # With 199 levels the tails are cut, at most a few percent of a difference in scale.
    assert exact * 0.97 < wasserstein2(unit, shift + scale * unit) <= exact * (1 + 1e-12)


def test_w2_of_quantiles_is_the_distance_between_the_tables():
    table_one, table_two = np.sort(np.random.default_rng(0).normal(size=(2, 199, 3)), axis=1)
    exact = np.sqrt(np.square(table_one - table_two).mean(0)).mean()
    assert wasserstein2(table_one, table_two) == pytest.approx(exact, rel=1e-12)


def test_w2_does_not_interpolate_between_members_of_an_ensemble():
    members = np.array([[0.0], [1.0]])
    assert wasserstein2(members.repeat(500, 0), members, num_levels=200) == 0.0


def test_w2_refuses_samples_at_other_places():
    with pytest.raises(ValueError, match="same places"):
        wasserstein2(np.zeros((3, 2)), np.zeros((3, 4)))
    with pytest.raises(ValueError, match="num_samples, places"):
        wasserstein2(np.zeros(3), np.zeros((3, 4)))


# --- the reference --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_belongs_to_the_data(name):
    truth, data = reference(name), toy_data(name)
    np.testing.assert_allclose(truth.data.x, data.x, rtol=1e-12)
    np.testing.assert_allclose(truth.data.y, data.y, rtol=1e-12)
    np.testing.assert_array_equal(truth.data.grid, data.grid)
    np.testing.assert_allclose(truth.plot_grid[::4], data.grid, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_says_how_far_to_trust_it(name):
    truth = reference(name)
    assert truth.rhat.shape == truth.ess.shape == (25,)
    assert truth.rhat.max() < {"A": 1.002, "B": 1.08}[name]
    assert truth.ess.min() > {"A": 8000, "B": 120}[name]
    assert truth.divergences == 0
    assert max(truth.measured["collapse_error"]) < 1e-6
    assert {"jax", "numpyro"} <= truth.versions.keys()
    assert {"chains", "warmup", "draws", "seed"} <= truth.settings.keys()


@pytest.mark.parametrize("name", NAMES)
def test_nuts_agrees_with_itself_as_recorded(name):
    truth = reference(name)
    assert wasserstein2(*truth.run_quantiles) == pytest.approx(truth.w2_runs, rel=1e-3)
    assert all(wasserstein2(run, truth.quantiles) < truth.w2_runs for run in truth.run_quantiles)
    assert truth.w2_runs < truth.w2_chains < 0.2


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_wide_where_there_are_no_data_and_fits_where_there_are(name):
    truth = reference(name)
    assert (np.diff(truth.quantiles, axis=0) >= 0).all()
    inside = np.interp(truth.data.x, truth.data.grid, truth.std)
    assert truth.gap_std > 5 * inside.min()
    mean = np.interp(truth.data.x, truth.plot_grid, truth.functions.mean(0))
    assert (truth.data.y - mean).std() < 2 * OBS_STD


def test_the_references_are_small():
    folder = SCRIPT.parents[1] / "livi" / "experiments" / "references"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 300_000


# --- the script that makes it ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_nuts_reference", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def backend(script):
    return script.Backend(np, scipy.linalg.solve_triangular)


def test_the_script_has_the_networks_hidden_weights(script):
    assert script.num_hidden() == 105 - SIZES[-2] - 1 == 94


def test_the_features_are_those_of_the_torch_network(script, backend):
    net = network(3).double()
    hidden = np.concatenate(
        [np.concatenate([layer.weight.detach().T.flatten(), layer.bias.detach()]) for layer in (net[0], net[2])]
    )
    x = np.linspace(-2, 2, 9)
    phi = script.features(backend, hidden, x)
    last = torch.cat([net[4].weight[0], net[4].bias]).detach().numpy()
    np.testing.assert_allclose(phi @ last, net(torch.as_tensor(x)[:, None])[:, 0].detach(), rtol=1e-10)


def test_the_collapsed_density_is_the_marginal_gaussian(script, backend):
    rng = np.random.default_rng(0)
    data = toy_data("B")
    for _ in range(3):
        phi = script.features(backend, rng.normal(size=94), data.x)
        covariance = phi @ phi.T + OBS_STD**2 * np.eye(70)
        exact = stats.multivariate_normal(np.zeros(70), covariance).logpdf(data.y)
        assert script.collapsed_log_likelihood(backend, phi, data.y) == pytest.approx(exact, rel=1e-9)


def test_the_collapsed_density_is_the_full_one_integrated_by_quadrature(script, backend):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=4), rng.normal(size=4)
    phi = script.features(backend, rng.normal(size=2), x, (1, 1, 1))  # one hidden unit and a bias: two dimensions
    axis = np.linspace(-8, 8, 641)
    w = np.stack(np.meshgrid(axis, axis), -1)
    density = np.exp(stats.norm(0, 1).logpdf(w).sum(-1) + stats.norm(w @ phi.T, OBS_STD).logpdf(y).sum(-1))
    integral = density.sum() * (axis[1] - axis[0]) ** 2
    assert script.collapsed_log_likelihood(backend, phi, y) == pytest.approx(np.log(integral), abs=1e-8)


def test_the_completed_layer_follows_its_conditional(script, backend):
    rng = np.random.default_rng(2)
    data = toy_data("A")
    phi = script.features(backend, rng.normal(size=94), data.x)
    assert script.collapse_error(backend, phi, data.y, rng.normal(size=11)) < 1e-9
    precision = np.eye(11) + phi.T @ phi / OBS_STD**2
    centre = script.complete(backend, phi, data.y, np.zeros(11))
    np.testing.assert_allclose(precision @ centre, phi.T @ data.y / OBS_STD**2, rtol=1e-8)
    factor = np.stack([script.complete(backend, phi, data.y, row) - centre for row in np.eye(11)], 1)
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(precision), rtol=1e-6, atol=1e-10)


# --- running it -----------------------------------------------------------------------------------


def test_a_run_reports_bound_distance_and_spread():
    row = run("A", "livi-mixture-2", 0, recipe=QUICK, num_draws=50)
    assert math.isfinite(row["elbo"])
    assert row["elbo_standard_error"] > 0
    assert row["w2_to_nuts"] > row["w2_nuts"] > 0
    assert row["gap_std"] > 0
    assert row["gap_std_nuts"] == pytest.approx(reference("A").gap_std)
    again = run("A", "livi-mixture-2", 0, recipe=QUICK, num_draws=50)
    untimed = {"seconds": 0, "cpu_seconds": 0}
    assert again | untimed == row | untimed


@pytest.mark.parametrize("method", ["livi-polished", "livi-annealed"])
def test_markov_chains_say_whether_they_agree(method):
    row = run("A", method, 0, recipe=QUICK, num_draws=50)
    assert row["elbo"] is None
    assert row["chains"]["chains"] <= 8
    assert row["chains"]["rhat"][1] >= row["chains"]["rhat"][0]
    assert (row["chains"]["log_evidence"] is not None) == (method == "livi-annealed")
    row["chains"]["rhat"], row["chains"]["effective"] = (1.0, 1.234), (100.0, 12.3)
    assert f"- {method} on A: R-hat at most 1.23, effective draws at least 12." in text({"rows": [row]})


def test_the_bench_writes_valid_json_as_it_goes_and_goes_on(tmp_path):
    heard = []
    config = Config(data=("A",), methods=("map", "ensemble-2"), seeds=2, quick=True)
    document = bench(config, tmp_path, say=heard.append)
    stored = json.loads((tmp_path / "toy.json").read_text())
    assert stored == json.loads(json.dumps(document))
    assert {"config", "versions", "machine", "rows", "summary"} <= stored.keys()
    assert [(row["method"], row["seed"]) for row in stored["rows"]] == [
        ("map", 100),
        ("ensemble-2", 100),
        ("map", 101),
        ("ensemble-2", 101),
    ]
    assert len(heard) == 4
    stored["rows"].pop()
    (tmp_path / "toy.json").write_text(json.dumps(stored))
    resumed = bench(config, tmp_path, say=heard.append)
    assert "going on after 3 of 4 fits" in heard[4]
    assert [row["w2_to_nuts"] for row in resumed["rows"]] == [row["w2_to_nuts"] for row in document["rows"]]
    with pytest.raises(ValueError, match="choose another folder"):
        bench(Config(data=("B",), methods=("map",), quick=True), tmp_path)


def test_every_rival_runs_and_is_drawn_beside_nuts(tmp_path):
    elsewhere = ("livi", "livi-sampled", "full_rank", "map", "langevin")  # run by other tests, or for too long
    methods = [method for method in default_methods(2) if method not in elsewhere]
    config = Config(data=("A",), methods=tuple(methods), seeds=1, quick=True)
    document = bench(config, tmp_path, say=lambda _: None)
    assert [row["error"] for row in document["rows"]] == [None] * len(methods)
    assert "livi-annealed is Markov chain Monte Carlo." in document["notes"]
    bounded = {row["method"] for row in document["rows"] if row["elbo"] is not None}
    assert bounded == {"mean_field", "avb", "kivi", "sivi", "mnf", "livi-mixture-2"}
    pytest.importorskip("matplotlib")
    [figure] = draw([tmp_path / "toy.json"], tmp_path / "figure.png")
    assert figure.name == "figure-a.png"
    assert figure.stat().st_size > 20_000


def test_the_figure_goes_from_the_farthest_to_nuts_over_several_files(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    flat = [0.0] * len(reference("A").plot_grid)

    def row(method, distance):
        return {"data": "A", "method": method, "w2_to_nuts": distance, "curve": {"mean": flat, "std": flat}}

    files = [tmp_path / "one.json", tmp_path / "two.json"]
    files[0].write_text(json.dumps({"rows": [row("livi", 0.2), row("map", 0.6), {**row("swag", 0.9), "curve": None}]}))
    files[1].write_text(json.dumps({"rows": [row("livi", 0.1), row("ensemble-5", 0.4)]}))
    drawn = []
    monkeypatch.setattr("livi.report.toy.save", lambda figure, _: drawn.append(figure))
    assert draw(files, tmp_path / "figure.png") == [tmp_path / "figure-a.png"]
    panels = [ax for ax in drawn[0].axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["MAP", "Ensemble of 5", "LIVI", "NUTS"]
    assert [ax.texts[0].get_text() for ax in panels][:3] == [f"$W_2$ = {w2}" for w2 in ("0.600", "0.400", "0.200")]
    assert "NUTS, epistemic" in [text.get_text() for text in drawn[0].legends[0].get_texts()]


@pytest.mark.filterwarnings("ignore::livi.FitWarning")  # too few steps
def test_the_bound_of_a_rivals_sampler_is_the_linearised_one():
    posterior = fit_toy("A", "avb", 0, recipe=QUICK).posterior
    inputs, targets = as_tensors(toy_data("A"))
    sampler = posterior.sampler
    plain = ImplicitPosterior(sampler.layout, list(sampler.generators), list(sampler.noises))
    rng = torch.Generator().manual_seed(0)
    ours = evidence_bound(posterior, inputs, targets, rng, repeats=3, samples=8)
    rng = torch.Generator().manual_seed(0)
    same = Posterior(plain, posterior.likelihood, posterior.prior)
    assert ours == evidence_bound(same, inputs, targets, rng, repeats=3, samples=8)


def test_a_rival_that_fails_leaves_the_others_their_rows(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise ValueError("not today")

    monkeypatch.setattr("livi.experiments.toy.method_named", lambda method: refuse if method == "map" else fit_ensemble)
    config = Config(data=("A",), methods=("map", "ensemble-2"), seeds=1, quick=True)
    heard = []
    rows = bench(config, tmp_path, say=heard.append)["rows"]
    assert [row["error"] for row in rows] == ["ValueError: not today", None]
    assert "A map seed 100: ValueError: not today" in heard[0]
    assert "| A | map | 0, 1 failed | – | – |" in text({"rows": rows})


def test_a_file_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "toy.json").write_text("[]")
    with pytest.raises(ValueError, match="move it away"):
        bench(Config(methods=("map",), quick=True), tmp_path)
    assert (tmp_path / "toy.json").read_text() == "[]"


def test_the_summary_has_mean_sd_and_extremes():
    rows = [
        {"data": "A", "method": "livi", "seed": seed, "elbo": elbo, "w2_to_nuts": 0.5, "gap_std": 1.0, "seconds": 2.0}
        for seed, elbo in enumerate((-1.0, -2.0, -6.0))
    ]
    rows.append(rows[0] | {"method": "map", "elbo": None})
    livi, single = KIND.summary(rows)
    assert livi["seeds"] == 3
    assert livi["elbo"] == pytest.approx({"mean": -3.0, "sd": math.sqrt(7), "min": -6.0, "max": -1.0})
    assert single["elbo"] is None
    assert single["w2_to_nuts"]["sd"] is None
    printed = text({"rows": rows})
    assert "| A | livi | 3 | **0.500** ± 0.000 | **-3.0** ± 1.5 | 1.00 ± 0.00 | 2.0 ± 0.0 |" in printed
    assert "| A | map | 1 | 0.500 | – |" in printed
    assert "- NUTS on A: W2 to itself 0.018, std in the gap 0.80," in printed
    assert "Mean ± standard error over seeds." in printed


def test_every_method_is_known_and_an_unknown_one_is_refused():
    for method in METHODS:
        assert callable(method_named(method.replace("K", "3")))
    assert all(callable(method_named(method)) for method in all_methods(2))
    for method in ("livi-mixture-0", "ensemble", "swagger"):
        with pytest.raises(ValueError, match="method: expected one of"):
            method_named(method)


@pytest.mark.parametrize("twice", [{"data": ("A", "A")}, {"methods": ("map", "map")}])
def test_what_is_given_twice_would_count_twice_and_is_an_error(twice):
    with pytest.raises(ValueError, match="expected different names"):
        Config(**twice)


def test_a_fit_that_is_interrupted_at_its_start_is_no_result(monkeypatch):
    interrupted = SimpleNamespace(history=[], plan={"recipe": {"steps": 5}, "interrupted_at": 0})
    monkeypatch.setattr("livi.experiments.toy.method_named", lambda _: lambda *_, **__: interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_toy("A", "livi", 0)


def test_failed_seeds_are_not_counted():
    rows = [{"data": "a", "method": "livi", "error": None, "w2_to_nuts": 0.1}]
    rows += [{"data": "a", "method": "livi", "error": "no luck", "w2_to_nuts": None}]
    assert KIND.summary(rows)[0]["seeds"] == 1
