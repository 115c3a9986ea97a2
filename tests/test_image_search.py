"""Settings in names, and the search for them: as many candidates for each method, chosen by validation alone."""

import json
import re
from dataclasses import replace

import pytest
import torch
from support.picture_files import few_steps, write_cifar, write_mnist

from livi import cli
from livi.experiments.deadlines import Deadline
from livi.experiments.images import methods
from livi.experiments.images.bench import Config, bench
from livi.experiments.images.methods import Task, default_methods, fit_method
from livi.experiments.images.problems import PROBLEMS, load
from livi.experiments.images.search import (
    best_candidates,
    candidates,
    chosen_methods,
    methods_to_search,
    searched,
)
from livi.experiments.images.search import text as search_text
from livi.experiments.images.settings import Settings, split_name
from livi.experiments.images.synthetic import SYNTHETIC
from livi.model.priors import Normal
from livi.rivals import METHODS


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    torch.set_default_dtype(torch.float32)
    few_steps(monkeypatch)


def tried(method, seed, nll, error=None):
    found = {"confidence": 0.6, "auroc": 0.9, "fpr95": 0.2}
    row = {
        "problem": "mnist",
        "method": method,
        "seed": seed,
        "error": error,
        "nll": nll,
        "accuracy": 0.9,
        "ece": 0.02,
        "seconds": 1.0,
    }
    return row | {"others_mean": found}


# --- settings -------------------------------------------------------------------------------------


def test_settings_are_read_off_a_name_and_become_options():
    method, settings = split_name("livi-mixture-5@prior=0.5@noise=0.1@rate=0.002")
    assert (method, settings) == ("livi-mixture-5", Settings(prior=0.5, noise=0.1, rate=0.002))
    options = settings.options()
    assert isinstance(options["prior"], Normal)
    assert float(options["prior"].scale()) == pytest.approx(0.5)
    assert options["recipe"].named == {"affine_rate", "nonlinear_rate"}
    cold = split_name("livi@temperature=0.3@samples=1")[1].options()["recipe"]
    assert (cold.named, cold.temperature, cold.num_samples) == ({"temperature", "num_samples"}, 0.3, 1)
    slow = split_name("livi@offset=0.0001@rate=0.002")[1].options()["recipe"]
    assert (slow.affine_rate, slow.nonlinear_rate) == (0.0001, 0.002)
    assert split_name("map") == ("map", Settings())
    assert Settings().options() == {}


def test_as_many_networks_answer_as_the_name_says(tmp_path):
    write_mnist(tmp_path)
    task = Task(load(PROBLEMS["mnist"], tmp_path, quick=True), 1, tmp_path, quick=True, samples=4)
    for name, networks in (("livi", 4), ("livi@draws=6", 6), ("livi-pooled-2@draws=6", 6)):
        assert len(fit_method(name, task).predict(task.data[0][:2]).logits) == networks


@pytest.mark.parametrize(
    ("problem", "name", "message"),
    [
        (
            "mnist",
            "livi@width=3",
            "the settings prior, decay, noise, rate, offset, temperature, samples, draws, epochs, fit once",
        ),
        ("mnist", "livi@prior=1@prior=2", "once at most"),
        ("mnist", "livi@prior=wide", "expected positive numbers"),
        ("mnist", "livi@prior=-1", "expected positive numbers"),
        ("mnist", "map@noise=0.1", "expected map with no settings but prior here"),
        ("mnist", "livi@decay=0.1", "but prior, noise, rate, offset, temperature, samples, draws, fit here"),
        ("cifar10", "ensemble-5@prior=1", "no settings but decay, epochs here"),
        ("cifar10", "swag@fit=3", "no settings but prior, decay, epochs, draws here"),
        ("cifar10", "map@epochs=1.5", "expected a whole number of epochs"),
        ("cifar10", "livi@samples=1.5", "expected a whole number of samples"),
        ("cifar10", "swag@samples=1", "no settings but prior, decay, epochs, draws here"),
        ("mnist", "livi@epochs=3", "no settings but prior"),
        ("mnist", "lvi@prior=1", "got 'lvi'"),
    ],
)
def test_a_setting_that_a_method_has_not_is_an_error(problem, name, message):
    with pytest.raises(ValueError, match=message):
        Config(problem, methods=(name,))


@pytest.mark.parametrize("name", ["map", "ensemble-2", "swag", "livi", "livi-pooled-2"])
def test_every_kind_of_method_is_fitted_under_the_prior_of_its_name(tmp_path, name):
    write_mnist(tmp_path)
    task = Task(load(PROBLEMS["mnist"], tmp_path, quick=True), 1, tmp_path, quick=True, samples=4)
    posterior = fit_method(f"{name}@prior=0.7", task).posteriors[0]
    assert float(posterior.prior.scale()) == pytest.approx(0.7)


def test_networks_of_another_weight_decay_are_others(tmp_path, monkeypatch):
    write_cifar(tmp_path)
    trained = []

    def train(net, inputs, labels, training, **more):
        trained.append((training.weight_decay, more["path"].name))
        return methods.Trained(net.eval(), 1.0)

    monkeypatch.setattr(methods, "train", train)
    task = Task(load(PROBLEMS["cifar10"], tmp_path, quick=True), 1, tmp_path, quick=True)
    for name in ("map", "map@decay=0.002"):
        fit_method(name, task)
    assert trained == [
        (5e-4, "network-1000-1-epochs.livi"),
        (2e-3, "network-1000-1-epochs-decay-0.002.livi"),
    ]


@pytest.mark.parametrize(("problem", "single"), [("mnist", "livi-mixture-1"), ("cifar10", "livi")])
def test_a_pool_shares_checkpoints_only_with_fits_of_one_component(tmp_path, monkeypatch, problem, single):
    (write_mnist if problem == "mnist" else write_cifar)(tmp_path)
    written = {}

    def fit(*arguments, **options):
        written.setdefault(name, options["checkpoint"].name)
        raise KeyboardInterrupt

    monkeypatch.setattr(methods, "train", lambda net, *_, **__: methods.Trained(net.eval(), 1.0))
    monkeypatch.setitem(methods.METHODS, "livi", replace(METHODS["livi"], fit=fit))
    task = Task(load(PROBLEMS[problem], tmp_path, quick=True), 1, tmp_path, Deadline.after(10.0), quick=True)
    for name in ("livi", "livi-mixture-1", "livi-pooled-2"):
        with pytest.raises(KeyboardInterrupt):
            fit_method(name, task)
    assert written["livi-pooled-2"] == written[single]
    assert len(set(written.values())) == 2


def test_lengths_of_a_name_are_those_of_its_network_and_of_its_fit(tmp_path, monkeypatch):
    write_cifar(tmp_path)
    lengths, steps = [], []

    def train(net, inputs, labels, training, **more):
        lengths.append((training.epochs, more["path"].name))
        return methods.Trained(net.eval(), 1.0)

    def fit(*arguments, **options):
        steps.append(options.get("steps"))
        raise KeyboardInterrupt

    monkeypatch.setattr(methods, "train", train)
    monkeypatch.setitem(methods.METHODS, "livi", replace(METHODS["livi"], fit=fit))
    task = Task(load(PROBLEMS["cifar10"], tmp_path, quick=True), 1, tmp_path, epochs=7, fit_epochs=4.0)
    for name in ("livi-pooled-2", "livi-pooled-2@epochs=5@fit=2"):
        with pytest.raises(KeyboardInterrupt):
            fit_method(name, task)
    assert lengths == [(7, "network-1000-7-epochs.livi"), (5, "network-1000-5-epochs.livi")]
    assert steps[0] == 2 * steps[1] > 0


# --- candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_all_methods_have_as_many_candidates_and_all_of_them_can_run(problem):
    every = default_methods(PROBLEMS[problem])
    found = [candidates(method, PROBLEMS[problem]) for method in every]
    assert {len(names) for names in found} == {4}
    config = searched(Config(problem))
    assert len(config.methods) == 4 * len(every)
    assert config.part == "validation"
    assert candidates("map@prior=2", PROBLEMS["mnist"]) == ("map@prior=2",)


def test_what_takes_the_settings_of_another_is_not_searched_by_default():
    every, some = default_methods(PROBLEMS["cifar10"]), methods_to_search(PROBLEMS["cifar10"])
    assert set(every) - set(some) == {"ensemble-5", "livi-pooled-5", "livi-smallest"}
    assert {"map", "livi", "mean_field", "swag"} <= set(some)


def test_nothing_that_every_step_needs_all_pictures_for_runs_by_default():
    assert not {"nuts", "langevin", "full_rank"} & set(default_methods(PROBLEMS["mnist"]))
    assert {"nuts", "langevin", "full_rank"} <= set(METHODS)


def test_the_lowest_mean_is_chosen_among_those_fitted_under_most_seeds():
    rows = [tried("map", 0, 0.5), tried("map", 1, 0.1), tried("map@prior=1", 0, 0.35), tried("map@prior=1", 1, 0.15)]
    rows += [tried("map@prior=0.2", 0, 0.01), tried("livi", 0, None, "FitError: no"), tried("livi@prior=1", 0, 0.2)]
    assert best_candidates(rows) == {"map": "map@prior=1", "livi": "livi@prior=1"}
    told = search_text({"experiment": "mnist", "rows": rows, "notes": []})
    assert "| map@prior=1 * | 2 | 0.2500 ± 0.1000 |" in told
    assert "- livi on mnist (0): failed: FitError: no" in told


def test_a_search_goes_into_the_test_run_by_its_file(tmp_path, monkeypatch, capsys):
    write_mnist(tmp_path / "data")
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path / "data"))
    command = ["bench", "mnist", "--quick", "--methods", "map", "--out", str(tmp_path)]
    assert cli.main([*command, "--search"]) == 0
    printed = capsys.readouterr()
    path = tmp_path / "mnist-validation-quick.json"
    assert f"--chosen {path}" in printed.err
    document = json.loads(path.read_text())
    assert [row["method"] for row in document["rows"]] == list(candidates("map", PROBLEMS["mnist"]))
    assert {row["seed"] for row in document["rows"]} == {0}
    assert set(document["rows"][0]["others"]) == set(SYNTHETIC)  # and no set that is reported
    best = best_candidates(document["rows"])["map"]
    assert f"| {best} * | 1 |" in printed.out
    assert cli.main([*command, "--chosen", str(path)]) == 0
    assert [row["method"] for row in json.loads((tmp_path / "mnist-quick.json").read_text())["rows"]] == [best]


def test_a_file_that_is_no_search_or_lacks_a_method_is_refused(tmp_path, capsys):
    path = tmp_path / "some.json"
    document = {"experiment": "mnist", "config": {"part": "validation"}, "rows": [tried("map@prior=1", 0, 0.1)]}
    path.write_text(json.dumps(document))
    assert chosen_methods(path, "mnist") == ("map@prior=1", "ensemble-5@prior=1")
    assert chosen_methods(path, "mnist", ["map", "livi@rate=0.1"]) == ("map@prior=1", "livi@rate=0.1")
    with pytest.raises(ValueError, match="expected a search for swag, got none; run it: --search --methods swag"):
        chosen_methods(path, "mnist", ["swag"])
    with pytest.raises(FileNotFoundError, match="expected the file of `livi bench mnist --search`, got none"):
        chosen_methods(tmp_path / "none.json", "mnist")
    with pytest.raises(ValueError, match="expected results of `livi bench cifar10 --search`"):
        chosen_methods(path, "cifar10")
    path.write_text(json.dumps(document | {"config": {"part": "test"}}))
    with pytest.raises(ValueError, match="got something else"):
        chosen_methods(path, "mnist")
    with pytest.raises(SystemExit):
        cli.main(["bench", "mnist", "--search", "--ablations"])
    assert "expected one of --ablations, --search and --chosen" in capsys.readouterr().err


# --- synthetic images -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(SYNTHETIC))
@pytest.mark.parametrize("channels", [1, 3])
def test_synthetic_images_are_pictures_and_others_and_the_same_every_time(name, channels):
    pictures = torch.rand(5, channels, 28, 28, generator=torch.Generator().manual_seed(3))
    made = SYNTHETIC[name](pictures)
    assert made.shape == pictures.shape
    assert made.min() >= -1e-6
    assert made.max() <= 1.0 + 1e-6
    assert (made - pictures).abs().mean() > 0.05
    assert torch.equal(made, SYNTHETIC[name](pictures))


def test_scrambled_pictures_keep_brightness_and_frequencies():
    torch.set_default_dtype(torch.float64)
    grid = torch.arange(16.0) / 16 * 2 * torch.pi
    wave = 0.5 + 0.3 * torch.sin(3 * grid)[None, None, None, :].expand(1, 1, 16, 16)
    made = SYNTHETIC["scrambled"](wave)
    assert made.mean().item() == pytest.approx(0.5)
    assert torch.fft.rfft2(made).abs()[0, 0, 0, 3].item() == pytest.approx(16 * 16 * 0.15, rel=1e-6)


def test_validation_is_scored_on_synthetic_images_and_says_so(tmp_path):
    write_mnist(tmp_path)
    document = bench(
        Config("mnist", methods=("map",), seeds=(1,), part="validation", quick=True), tmp_path, tmp_path, say=str
    )
    assert re.search("validation images altered in six ways", " ".join(document["notes"]))
    assert set(document["rows"][0]["entropy"]) == {"scored", *SYNTHETIC}
    assert document["rows"][0]["shifts"] == {}  # which are reported
