"""The benchmarks on images, run as a whole on made ones: rows, going on, failures, words and figures."""

import json
import math
import pickle
from dataclasses import replace
from functools import partial

import pytest
import torch
from support.picture_files import few_steps, write_cifar, write_mnist
from torch import nn

from livi import cli
from livi.experiments.deadlines import Deadline
from livi.experiments.images import bench as benches
from livi.experiments.images import methods
from livi.experiments.images.bench import Config, bench
from livi.experiments.images.methods import Fitted, Task, default_methods, fit_method
from livi.experiments.images.problems import PROBLEMS, Labelled, Sets, load
from livi.experiments.images.scores import comparable
from livi.experiments.images.text import summary, text
from livi.experiments.runs import in_time
from livi.family.ensemble import Ensemble
from livi.model.likelihoods import Categorical
from livi.network import Layout
from livi.posterior import Posterior
from livi.report.image_figures import entropy_curves, figure_named, figure_names, shift_curves
from livi.report.style import PALETTE


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    few_steps(monkeypatch)


def quick(problem, **options):
    return Config(problem, **{"seeds": (1,), "quick": True} | options)


def made_row(method, seed, nll):
    curve = {"levels": [0.0, 90.0], "nll": [nll, 2.0], "ece": [0.01, 0.3], "accuracy": [0.99, 0.2]}
    found = {"confidence": 0.6, "auroc": 0.97, "fpr95": 0.1}
    return {
        "problem": "mnist",
        "method": method,
        "seed": seed,
        "error": None,
        "warnings": [],
        "accuracy": 0.99,
        "nll": nll,
        "ece": 0.005,
        "brier": 0.01,
        "others": {"kmnist": found},
        "others_mean": found,
        "shifts": {"rotation": curve},
        "entropy": {"scored": [0.9, 1.0], "kmnist": [0.1, 1.0]},
        "seconds": 12.0,
        "start_seconds": 0.0,
        "memory": None,
    }


def test_means_over_ood_sets_are_of_those_that_all_rows_have():
    easy = {"confidence": 0.2, "auroc": 0.99, "fpr95": 0.0}
    one, other = made_row("map", 0, 0.1), made_row("livi", 0, 0.1)
    other["others"] = other["others"] | {"svhn": easy}
    other["others_mean"] = {"confidence": 0.4, "auroc": 0.98, "fpr95": 0.05}
    alike = comparable([one, other])
    assert [row["others_mean"] for row in alike] == [made_row("map", 0, 0.1)["others_mean"]] * 2
    assert other["others_mean"]["confidence"] == 0.4  # the rows themselves are as they were
    found = text({"experiment": "mnist", "rows": [one, other], "notes": []})
    assert "Means over OOD sets are of those that all runs have: kmnist." in found
    assert "those that all runs have" not in text({"experiment": "mnist", "rows": [other], "notes": []})
    apart = one | {"others": {"svhn": easy}, "method": "ensemble"}
    assert [row["others_mean"] for row in comparable([one, apart])] == [None, None]


def test_entropy_is_drawn_of_the_ood_sets_that_all_methods_have():
    one, other = made_row("map", 0, 0.1), made_row("livi", 0, 0.1)
    other["entropy"] = other["entropy"] | {"svhn": [0.2, 1.0]}
    titles = [ax.get_title() for ax in entropy_curves([one, other], 10).axes if ax.get_title()]
    assert titles == ["KMNIST"]
    other["entropy"].pop("kmnist")
    titles = [ax.get_title() for ax in entropy_curves([one, other], 10).axes if ax.get_title()]
    assert titles == ["KMNIST", "SVHN"]


# --- whole runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "chosen"),
    [
        ("mnist", ("map", "livi", "livi-mixture-2")),
        ("fashion-mnist", ("map", "livi")),
        ("cifar10", ("ensemble-2", "livi-pooled-2")),
        ("cifar100", ("map", "livi")),
    ],
)
def test_a_pipeline_runs_from_files_to_tables_and_figures(tmp_path, monkeypatch, capsys, problem, chosen):
    if problem in ("mnist", "fashion-mnist"):
        write_mnist(tmp_path / "data", name=problem)
    else:
        write_cifar(tmp_path / "data")
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path / "data"))
    command = ["bench", problem, "--quick", "--methods", ",".join(chosen), "--out", str(tmp_path / "out")]
    assert cli.main(command) == 0
    printed = capsys.readouterr()
    document = json.loads((tmp_path / f"out/{problem}-quick.json").read_text())
    assert [row["method"] for row in document["rows"]] == list(chosen)
    for row in document["rows"]:
        assert row["error"] is None
        assert math.isfinite(row["nll"])
        assert set(row["others"]) == set(PROBLEMS[problem].others)
        assert f"| {row['method']} | 1 |" in printed.out
    assert "The numbers mean nothing" in printed.out
    drawn = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert f"{problem}-quick-entropy.png" in drawn
    assert len(drawn) == (1 if problem == "cifar100" else 2)
    before = (tmp_path / f"out/{problem}-quick.json").read_bytes()
    assert cli.main(command) == 0  # nothing is left to do
    assert json.loads(before)["rows"] == json.loads((tmp_path / f"out/{problem}-quick.json").read_text())["rows"]


def test_other_methods_and_seeds_add_to_the_same_file_and_other_settings_do_not(tmp_path):
    write_mnist(tmp_path)
    bench(quick("mnist", methods=("map",)), tmp_path, tmp_path)
    bench(quick("mnist", methods=("map",), seeds=(2,)), tmp_path, tmp_path)
    document = bench(quick("mnist", methods=("ensemble-2",)), tmp_path, tmp_path)
    assert {(row["method"], row["seed"]) for row in document["rows"]} == {("map", 1), ("map", 2), ("ensemble-2", 1)}
    with pytest.raises(ValueError, match="expected results of the same configuration"):
        bench(quick("mnist", methods=("map",), samples=3), tmp_path, tmp_path)


def test_a_method_that_fails_is_a_row_and_is_tried_again(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    taken = benches.fit_method

    def failing(name, task):
        if name == "map":
            raise RuntimeError("no luck\nat all")
        return taken(name, task)

    monkeypatch.setattr(benches, "fit_method", failing)
    document = bench(quick("mnist", methods=("map", "ensemble-2")), tmp_path, tmp_path)
    assert document["rows"][0]["error"] == "RuntimeError: no luck\nat all"
    assert "map on mnist (1): failed: RuntimeError: no luck" in text(document)
    monkeypatch.setattr(benches, "fit_method", taken)
    assert [row["error"] for row in bench(quick("mnist", methods=("map",)), tmp_path, tmp_path)["rows"]] == [None, None]


def test_a_fit_in_a_process_of_its_own_is_the_same_fit(tmp_path):
    write_mnist(tmp_path)
    config = quick("mnist", methods=("livi",))
    [row] = bench(config, tmp_path / "one", tmp_path)["rows"]
    images, folder = benches.Images(tmp_path, "cpu"), tmp_path / "two"
    there = partial(benches.fit_row, config=config, images=images, folder=folder, deadline=Deadline(), say=str)
    beside = in_time(config.jobs()[0], pickle.loads(pickle.dumps(there)), Deadline())
    assert {name: beside[name] for name in ("nll", "ece", "accuracy")} == {
        name: row[name] for name in ("nll", "ece", "accuracy")
    }
    assert in_time(config.jobs()[0], there, Deadline(0.0)) is None


# --- limited time ---------------------------------------------------------------------------------


def test_no_time_leaves_everything_to_the_next_run(tmp_path):
    write_cifar(tmp_path)
    said = []
    document = bench(quick("cifar10", methods=("map",)), tmp_path, tmp_path, minutes=0.0, say=said.append)
    assert document["rows"] == []
    assert said == ["0 minutes are over; the same command goes on from here"]
    assert "The paper's numbers" in text(document)


def test_a_fit_that_is_stopped_goes_on_to_the_same_answer(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setattr(methods, "QUICK_STEPS", 30)
    config = quick("mnist", methods=("livi",))
    [whole] = bench(config, tmp_path / "whole", tmp_path)["rows"]
    moments = iter([False] * 3)  # before the job and its fit, and at the first logged step
    monkeypatch.setattr(Deadline, "passed", lambda _: next(moments, True))
    document = bench(config, tmp_path / "parts", tmp_path, minutes=1.0, say=lambda _: None)
    assert document["rows"] == []
    noted = json.loads((tmp_path / "parts/mnist-quick/livi-1000.json").read_text())
    assert not noted["finished"]
    monkeypatch.setattr(Deadline, "passed", lambda _: False)
    [row] = bench(config, tmp_path / "parts", tmp_path, minutes=1.0, say=lambda _: None)["rows"]
    assert row["nll"] == whole["nll"]
    assert row["seconds"] > noted["seconds"]
    task = Task(
        load(PROBLEMS["mnist"], tmp_path, quick=True), 1, tmp_path / "parts/mnist-quick", Deadline(1.0), quick=True
    )
    assert fit_method("livi", task).seconds == row["seconds"]  # it is only read


# --- methods --------------------------------------------------------------------------------------


def test_fits_start_from_the_networks_that_ensembles_are_made_of(tmp_path):
    write_cifar(tmp_path)
    said = []
    task = Task(load(PROBLEMS["cifar10"], tmp_path, quick=True), 1, tmp_path / "nets", quick=True, say=said.append)
    ensemble = fit_method("ensemble-2", task)
    assert len(said) == 2
    fitted = fit_method("livi", task)
    assert len(said) == 2  # nothing is trained again
    assert fitted.start_seconds + 0.0 == pytest.approx(ensemble.seconds, rel=1.0)
    layout = fitted.posteriors[0].layout
    own, other = (layout.flatten(dict(net.named_parameters())) for net in ensemble.nets)
    centre = fitted.posteriors[0].sample(20).mean(0)
    assert (centre - own).square().mean() < 0.3 * (centre - other).square().mean()
    assert fitted.posteriors[0].plan["augment"] == "CropFlip(padding=4, flip=True)"


def test_pooled_posteriors_answer_in_equal_shares_by_the_same_networks_every_time():
    torch.manual_seed(0)
    layouts = [Layout(nn.Linear(3, 2)) for _ in range(2)]
    wide = [
        Posterior(Around(layout, centre), Categorical()) for layout, centre in zip(layouts, (0.0, 9.0), strict=True)
    ]
    pooled, inputs = Fitted(wide, 10, 0.0), torch.eye(3)
    logits = pooled.predict(inputs).logits
    assert logits.shape == (10, 3, 2)
    assert ((logits[:5] < 4.5).all(), (logits[5:] > 4.5).all()) == (True, True)
    assert torch.equal(pooled.predict(inputs).logits, logits)


class Around:
    def __init__(self, layout, centre):
        self.layout, self.centre = layout, centre

    def sample(self, num_samples, rng=None):
        return self.centre + 0.1 * torch.randn(num_samples, self.layout.num_params, generator=rng)


def test_an_ensemble_answers_with_every_member_once():
    members = torch.arange(24.0).reshape(3, 8)
    fitted = Fitted([Posterior(Ensemble(Layout(nn.Linear(3, 2)), members), Categorical())], 100, 0.0)
    assert fitted.predict(torch.eye(3)).logits.shape[0] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem": "imagenet"}, "problem: expected one of mnist, fashion-mnist, cifar10, cifar100, got 'imagenet'"),
        ({"methods": ("lvi",)}, "methods: expected some of livi, map, .*ensemble-K.*got 'lvi'"),
        ({"methods": ("ensemble-0",)}, "got 'ensemble-0'"),
        ({"methods": ("map", "map")}, "methods: expected different names, got 'map,map'"),
        ({"seeds": (1, 1)}, "seeds: expected different numbers from 0 on, got 1,1"),
        ({"part": "train"}, "part: expected validation or test, got 'train'"),
        ({"samples": 0}, "samples"),
    ],
)
def test_a_wrong_configuration_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**{"problem": "mnist"} | options)


def test_default_methods_compare_with_as_many_members_as_the_paper():
    assert {"map", "ensemble-5", "mean_field", "livi", "livi-smallest"} <= set(default_methods(PROBLEMS["mnist"]))
    assert "full_rank" not in default_methods(PROBLEMS["mnist"])
    assert {"ensemble-4", "livi", "livi-smallest"} <= set(default_methods(PROBLEMS["cifar100"]))


# --- words and figures ----------------------------------------------------------------------------


def test_the_text_has_means_errors_and_the_paper_s_numbers():
    rows = [made_row("livi", 1, 0.02), made_row("livi", 2, 0.04), made_row("map", 1, 0.05)]
    document = {"experiment": "mnist", "rows": rows, "notes": ["a note"]}
    told = text(document)
    assert "| mnist | livi | 2 | **0.0300** ± 0.0100 | **99.00** ± 0.00 | **0.50** ± 0.00 |" in told
    assert "| livi | 60.00 / 97.00 / 10.00 |" in told
    assert "| map | 0.050 / 1.0 | 2.000 / 30.0 |" in told
    assert "| LIVI (L'') | 55.03 | 97.91 |" in told
    assert told.endswith("- a note")
    [livi, _] = summary(rows)
    assert livi["nll"]["mean"] == pytest.approx(0.03)
    assert livi["others_auroc"]["mean"] == 0.97


def test_of_several_corruptions_the_text_has_their_mean_too():
    other = {"levels": [0.0, 90.0], "nll": [0.05, 4.0], "ece": [0.01, 0.1]}
    row = made_row("map", 1, 0.05)
    row["shifts"] = row["shifts"] | {"blur": other}
    told = text({"experiment": "cifar10", "rows": [row], "notes": []})
    assert "| corruption | 0 | 90 |\n| --- | --- | --- |\n| map | 0.050 / 1.0 | 3.000 / 20.0 |" in told
    assert "| blur | 0 | 90 |\n| --- | --- | --- |\n| map | 0.050 / 1.0 | 4.000 / 10.0 |" in told


def test_figures_have_a_curve_for_each_method():
    rows = [made_row("livi", 1, 0.02), made_row("livi", 2, 0.04), made_row("map", 1, 0.05)]
    left, right = shift_curves(rows, "rotation").axes
    assert [line.get_label() for line in left.lines] == ["LIVI", "MAP"]
    assert left.lines[0].get_ydata().tolist() == pytest.approx([0.03, 2.0])
    assert right.lines[1].get_ydata().tolist() == pytest.approx([1.0, 30.0])
    [ax] = entropy_curves(rows[2:], 10).axes
    assert ax.get_title() == "KMNIST"
    assert ax.lines[0].get_xdata().tolist() == pytest.approx([0.0, math.log(10)])
    with pytest.raises(ValueError, match="expected some of snow"):
        shift_curves(rows, "snow")


def test_the_overview_has_one_network_an_ensemble_and_livi_where_all_are_there():
    rows = [made_row(name, 1, nll) for name, nll in (("livi", 0.02), ("swag", 0.03), ("ensemble-5", 0.04))]
    assert figure_names(rows) == ["rotation", "entropy"]
    rows.append(made_row("map", 1, 0.05))
    assert figure_names(rows) == ["overview", "rotation", "entropy"]
    rows[0]["others"] = rows[0]["others"] | {"svhn": rows[0]["others"]["kmnist"]}  # which the others have not
    left, right = figure_named(rows, "overview", 10).axes
    assert [line.get_label() for line in left.lines] == ["MAP", "Ensemble of 5", "LIVI"]
    assert [line.get_ydata()[0] for line in left.lines] == pytest.approx([0.05, 0.04, 0.02])
    shares = [line.get_ydata().tolist() for line in right.lines]
    assert shares == 3 * [[0.1, 1.0], [0.9, 1.0]]  # of OOD sets, and of the scored images


def test_one_network_and_ensembles_have_the_same_colours_in_every_figure():
    names = ("swag", "ensemble-5", "map", "livi-mixture-1", "livi")
    for order in (names, names[::-1]):
        left, _ = shift_curves([made_row(name, 1, 0.1) for name in order], "rotation").axes
        colours = {line.get_label(): line.get_color() for line in left.lines}
        assert [colours[name] for name in ("LIVI", "MAP", "Ensemble of 5")] == list(PALETTE[:3])


def test_a_length_is_said_in_one_way():
    with pytest.raises(ValueError, match="gradients: expected none beside fit_epochs"):
        Config("mnist", gradients=100, fit_epochs=2.0)
    with pytest.raises(ValueError, match="fit_epochs: expected"):
        Config("mnist", fit_epochs=0.0)


def test_fits_from_other_networks_have_other_files(tmp_path):
    pictures = Labelled(torch.zeros(1, 3, 32, 32), torch.zeros(1).long())
    sets = Sets(PROBLEMS["cifar10"], pictures, pictures, pictures.inputs, {})
    task = Task(sets, 300, tmp_path)
    names = {methods._start_name(task), methods._start_name(replace(task, epochs=7))}
    names |= {methods._start_name(replace(task, norm="group"))}
    names |= {methods._start_name(replace(task, settings=methods.Settings(decay=0.001)))}
    assert names == {"-60-epochs", "-7-epochs", "-60-epochs-group", "-60-epochs-decay-0.001"}
    assert methods._start_name(replace(task, sets=replace(sets, problem=PROBLEMS["mnist"]))) == ""
