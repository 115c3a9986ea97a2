"""Figures: what is drawn, in one style that is undone, and errors that help."""

import dataclasses
import math
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image
from torch import nn

from livi.family.generators import Affine
from livi.family.implicit import ImplicitPosterior
from livi.model.likelihoods import Gaussian
from livi.model.priors import Normal
from livi.network import Layout
from livi.posterior.diagnostics import Skipped, diagnose
from livi.posterior.metrics import coverage, pit
from livi.posterior.prediction import RegressionPrediction
from livi.report import figures
from livi.report.style import tint


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def layout():
    return Layout(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)))  # 17 weights


@pytest.fixture
def diagnosis(layout):
    sampler = ImplicitPosterior(layout, Affine(3, 17))
    posterior = SimpleNamespace(sampler=sampler, likelihood=Gaussian(1.0), prior=Normal(), buffers={})
    return diagnose(posterior, torch.ones(5, 2), torch.zeros(5), num_samples=64, rng=seeded())


@pytest.fixture
def history():
    steps = torch.arange(10, 1010, 10).tolist()
    return [
        {
            "step": step,
            "bound": -1e4 / step,
            "log_likelihood": -5e3 / step,
            "log_prior": -3.0,
            "entropy": math.log(step),
        }
        | {"kl_weight": min(1.0, step / 300)}
        for step in steps
    ]


@pytest.fixture
def prediction():
    return RegressionPrediction(torch.randn(30, 50, generator=seeded()), torch.tensor(0.5))


def every_figure(layout, diagnosis, history, prediction):
    x = torch.linspace(-1, 1, 50)
    bands = {"a": prediction, "b": prediction}
    uniform = torch.rand(100, generator=seeded())
    yield figures.correlation_matrix(diagnosis)
    yield figures.correlation_matrix(dataclasses.replace(diagnosis.correlation, matrix=None))
    yield figures.weight_densities({"a": torch.randn(40, 17, generator=seeded())}, layout, [0, 3, 5, 16])
    yield figures.predictive_band(x, prediction.mean, prediction.epistemic_std, prediction.total_std)
    yield figures.predictive_bands(bands, x, data=(x[:5], x[:5]), truth=x.sin(), ylim=(-3.0, 3.0))
    yield figures.learning_curve(history)
    yield figures.coverage_curve(uniform)
    yield figures.coverage_curve({"a": uniform, "b": uniform.square()})
    yield figures.pit_histogram({"a": uniform, "b": uniform, "c": uniform, "d": uniform, "e": uniform})


def test_every_figure_is_drawn_and_saved_and_leaves_no_trace(layout, diagnosis, history, prediction, tmp_path):
    settings, modules = dict(matplotlib.rcParams), set(sys.modules)
    for number, figure in enumerate(every_figure(layout, diagnosis, history, prediction)):
        assert isinstance(figure, Figure)
        path = tmp_path / f"{number}.png"
        figures.save(figure, path)
        with Image.open(path) as image:
            assert image.width == pytest.approx(300 * figure.get_figwidth(), abs=1)
            assert np.asarray(image.convert("L")).std() > 1.0  # something is on it
    assert dict(matplotlib.rcParams) == settings
    assert "matplotlib.pyplot" not in set(sys.modules) - modules


@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_figures_can_be_saved_for_print(history, tmp_path, suffix):
    path = tmp_path / f"curve.{suffix}"
    figures.save(figures.learning_curve(history), path)
    assert path.stat().st_size > 5_000


def test_the_style_is_undone():
    before = matplotlib.rcParams["font.family"]
    with figures.style():
        assert matplotlib.rcParams["font.family"] == ["STIXGeneral"]
    assert matplotlib.rcParams["font.family"] == before


def test_a_missing_matplotlib_is_said_with_what_to_install(history, monkeypatch):
    drawn = figures.learning_curve(history)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (lambda: figures.learning_curve(history), lambda: figures.save(drawn, "none.png"), figures.style):
        with pytest.raises(ImportError, match=r'expected matplotlib, got .* `pip install "livi\[plots\]"`\.$'), draw():
            pass


def test_tints_run_from_white_to_the_colour():
    assert tint("#0072b2", 0.0) == "#ffffff"
    assert tint("#0072b2", 1.0) == "#0072b2"
    assert tint("#000000", 0.5) == "#808080"


# --- weights --------------------------------------------------------------------------------------


def test_a_correlation_matrix_shows_weights_and_layers(diagnosis):
    figure = figures.correlation_matrix(diagnosis)
    whole, blocks = figure.axes[:2]
    image = whole.images[0].get_array()
    assert image.shape == (17, 17)
    np.testing.assert_allclose(image[2, 7], diagnosis.correlation.matrix[2, 7])
    assert np.ma.getmaskarray(image).diagonal().all() or np.isnan(np.ma.filled(image, np.nan)).diagonal().all()
    assert [line.get_ydata()[0] for line in whole.lines[::2]] == [11.5]  # between 12 weights and 5
    assert [label.get_text() for label in blocks.get_xticklabels()] == ["0", "2"]
    assert len(blocks.texts) == 4
    assert blocks.texts[1].get_text() == f"{diagnosis.correlation.rms[0, 1]:.2f}"


def test_without_the_whole_matrix_only_layers_are_shown(diagnosis):
    check = dataclasses.replace(diagnosis.correlation, matrix=None)
    assert len(figures.correlation_matrix(check).axes) == 1


def test_small_correlations_have_a_digit_more(diagnosis):
    small = dataclasses.replace(diagnosis.correlation, mean_square=1e-4 * diagnosis.correlation.mean_square)
    [first, *_] = figures.correlation_matrix(dataclasses.replace(small, matrix=None)).axes[0].texts
    assert first.get_text() == f"{small.rms[0, 0]:.3f}" != "0.000"


def test_densities_have_a_panel_for_each_weight_and_a_curve_for_each_method(layout):
    samples = {"one": torch.randn(60, 17, generator=seeded()), "two": torch.randn(80, 17, generator=seeded(1))}
    figure = figures.weight_densities(samples, layout, [16, 0])
    assert [ax.get_title() for ax in figure.axes] == ["2.bias[0]", "0.weight[0, 0]"]
    for ax in figure.axes:
        assert [line.get_label() for line in ax.lines] == ["one", "two"]
        for line in ax.lines:
            assert np.trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(1.0, abs=5e-3)
    assert [text.get_text() for text in figure.legends[0].texts] == ["one", "two"]


# --- predictions ----------------------------------------------------------------------------------


def test_a_band_shows_mean_truth_data_and_two_widths(prediction):
    x = torch.linspace(1, -1, 50)[:, None]  # in any order, with or without a last axis
    figure = figures.predictive_band(
        x, prediction.mean, prediction.epistemic_std, prediction.total_std, data=(x[:3], x[:3]), truth=x.sin()
    )
    [ax] = figure.axes
    data, truth, mean = ax.lines
    assert to_hex(data.get_color()) == "#000000"
    assert truth.is_dashed()
    np.testing.assert_allclose(mean.get_ydata(), prediction.mean.flip(0))
    np.testing.assert_allclose(mean.get_xdata(), x[:, 0].flip(0))
    epistemic, total = (band.get_paths()[0].get_extents() for band in ax.collections)
    assert total.height > epistemic.height
    reach = (prediction.mean + 2.0 * prediction.total_std).max().item()
    assert total.ymax == pytest.approx(reach)
    dark, light = (sum(band.get_facecolor()[0][:3]) for band in ax.collections)
    assert dark < light


def test_a_band_can_be_drawn_into_given_axes(prediction):
    figure = Figure()
    ax = figure.subplots(1, 2)[1]
    values = (prediction.mean, prediction.epistemic_std, prediction.total_std)
    assert figures.predictive_band(torch.linspace(0, 1, 50), *values, ax=ax, title="here") is figure
    assert ax.get_title() == "here"
    assert not figure.legends


def test_several_bands_share_their_axes_and_one_legend(prediction):
    names = ["a", "b", "c", "d", "e"]
    figure = figures.predictive_bands(dict.fromkeys(names, prediction), torch.linspace(0, 1, 50), ylim=(-7.0, 7.0))
    shown = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title() for ax in shown] == names
    assert {ax.get_ylim() for ax in shown} == {(-7.0, 7.0)}
    assert len(figure.legends) == 1


# --- calibration ----------------------------------------------------------------------------------


def test_the_coverage_curve_is_the_coverage(prediction):
    targets = torch.randn(50, generator=seeded(3))
    figure = figures.coverage_curve(pit(prediction, targets))
    curve = figure.axes[0].lines[1]
    levels, shares = curve.get_xdata(), curve.get_ydata()
    for level in (0.5, 0.9):
        place = int(np.abs(levels - level).argmin())
        assert shares[place] == pytest.approx(coverage(prediction, targets, float(levels[place])))
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_the_bars_of_a_pit_histogram_average_to_one():
    figure = figures.pit_histogram({"calibrated": torch.rand(500, generator=seeded())}, bins=10)
    heights = [bar.get_height() for bar in figure.axes[0].patches if bar.get_width() == pytest.approx(0.1)]
    assert len(heights) == 10
    assert np.mean(heights) == pytest.approx(1.0)


# --- fits -----------------------------------------------------------------------------------------


def test_a_learning_curve_has_the_bound_and_its_terms_and_a_grey_warm_up(history):
    figure = figures.learning_curve(history)
    assert [ax.get_title() for ax in figure.axes] == ["bound", "log likelihood", "log prior", "entropy"]
    raw, smooth = figure.axes[3].lines
    np.testing.assert_allclose(raw.get_ydata(), [row["entropy"] for row in history])
    assert len(smooth.get_ydata()) == len(history)
    assert smooth.get_ydata()[50] == pytest.approx(np.mean(raw.get_ydata()[49:52]))
    assert figure.axes[0].patches[0].get_width() == pytest.approx(290 - 10)
    low, high = figure.axes[0].get_ylim()
    assert low > history[0]["bound"]  # the first steps are far below
    assert high >= history[-1]["bound"]


def test_a_learning_curve_of_two_rows_does_no_harm(history):
    assert len(figures.learning_curve(history[:2]).axes) == 4


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: figures.weight_densities({}, q, [0]), ValueError, "at least one method"),
        (
            lambda q: figures.weight_densities({"a": torch.zeros(3, 4)}, q, [0]),
            ValueError,
            "samples of a: expected shape",
        ),
        (lambda q: figures.weight_densities({"a": torch.randn(9, 17)}, q, [17]), ValueError, "0 to 16, got 17"),
        (lambda _: figures.learning_curve([]), ValueError, "at least two rows with a step and a finite bound"),
        (
            lambda _: figures.learning_curve([{"step": 1.0}]),
            ValueError,
            "two rows with a step and a finite bound, log_likelihood",
        ),
        (lambda _: figures.coverage_curve(torch.tensor([0.5, 1.5])), ValueError, "expected numbers from 0 to 1"),
        (lambda _: figures.coverage_curve({}), ValueError, "at least one tensor"),
        (lambda _: figures.pit_histogram([0.5]), TypeError, "expected a torch.Tensor"),
        (lambda _: figures.pit_histogram(torch.rand(5), bins=0), ValueError, "bins: expected at least 1"),
        (lambda _: figures.predictive_bands({}, torch.zeros(3)), ValueError, "at least one, got none"),
        (
            lambda _: figures.predictive_band(*[torch.arange(n * 1.0) for n in (3, 4, 3, 3)]),
            ValueError,
            "mean: expected 3",
        ),
        (lambda _: figures.predictive_band(*[torch.zeros(3)] * 4), ValueError, "two different numbers, got 3 of one"),
        (lambda _: figures.predictive_band(*[torch.zeros(3, 2)] * 4), ValueError, r"x: expected shape \(B,\)"),
    ],
)
def test_bad_input_is_a_clear_error(layout, call, error, message):
    with pytest.raises(error, match=message):
        call(layout)


def test_a_diagnosis_without_correlations_is_a_clear_error(diagnosis):
    empty = dataclasses.replace(diagnosis, correlation=Skipped("too few samples"))
    with pytest.raises(ValueError, match="expected one with correlations, got none; too few samples"):
        figures.correlation_matrix(empty)
