"""The mean gradient of the entropy, as the default estimates it, is the exact one to a percent, all through a fit."""

import pytest
import torch
from torch import nn

import livi
from benchmarks.bench_gradient import LIMIT, Watch
from benchmarks.gradient_bias import bias_of
from livi.family.entropy import Lanczos
from livi.inference import Trainer, begin
from livi.inference.callbacks import Callbacks


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def planned(steps):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(700, 40, generator=rng)
    y = (x[:, :8] @ torch.randn(8, 4, generator=rng)).argmax(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(40, 60), nn.ReLU(), nn.Linear(60, 50), nn.ReLU(), nn.Linear(50, 4))
    return livi.plan(net, (x, y), livi.Categorical(), steps=steps)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")  # a fit of a few steps
def test_the_default_is_within_a_percent_from_start_to_end():
    plan = planned(steps=90)
    assert isinstance(plan.bound.entropy, Lanczos)
    begin(plan, 0)
    watch = Watch(plan.bound.family, {"default": plan.bound.entropy}, (0, 45, 90), probes=4)
    Trainer(plan.bound, plan.data, plan.recipe, callbacks=Callbacks([watch])).run()
    assert [row["step"] for row in watch.rows] == [0, 45, 90]
    for row in watch.rows:
        assert abs(row["projection"] - 1.0) < LIMIT
        assert abs(row["norm"] - 1.0) < LIMIT
        assert row["missed"] == 0.0
        assert abs(row["raw_projection"] - 1.0) < 4.0 * row["raw_error"] + LIMIT  # without the trick


def test_a_solve_that_is_cut_short_is_found_out():
    posterior = planned(steps=10).bound.family
    posterior.begin_around(posterior.layout.flatten()[None], 1.0, relative=True)
    with torch.no_grad():  # far wider than the noise in some directions, and far narrower in others
        for matrix in posterior.generators[0].parameters():
            if matrix.ndim == 2:
                matrix *= torch.logspace(-0.6, 0.2, len(matrix))[:, None]
    short = bias_of(posterior, Lanczos(num_probes=1, tolerance=0.0, max_iterations=1), probes=4)
    enough = bias_of(posterior, Lanczos(num_probes=1, tolerance=1e-4, max_iterations=500), probes=4)
    assert max(abs(short.projection - 1.0), abs(short.norm - 1.0)) > LIMIT
    assert abs(enough.projection - 1.0) < 1e-3
    assert abs(enough.norm - 1.0) < 1e-3
