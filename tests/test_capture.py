"""Recorded steps: the same numbers as eager ones, and eager ones wherever a recording is impossible or wrong."""

import copy
from dataclasses import replace

import pytest
import torch
from support.spoiled_data import SpoiledBatches
from torch import nn

import livi
from livi.inference import Trainer, capture
from livi.inference.begin import begin
from livi.inference.capture import Stepper
from livi.inference.optimiser import adam, for_optimiser, set_rate
from livi.inference.recordable import CaptureError, WithoutMagma
from livi.rivals.mnf import MultiplicativeFlow

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


# --- without a GPU --------------------------------------------------------------------------------


def test_on_a_cpu_every_step_is_taken_and_none_recorded():
    counter = torch.zeros(())
    stepper = Stepper(lambda batch: counter.add_(batch[1].sum()), lambda: [counter])
    for _ in range(10):
        stepper((torch.ones(2), torch.ones(2)))
    assert counter == 20.0
    assert not stepper.captured
    assert not stepper.recordings


def test_rates_of_adam_can_be_changed_and_a_saved_state_keeps_its_new_home():
    parameter = nn.Parameter(torch.ones(3))
    optimiser = adam([parameter], lr=0.5)
    group = optimiser.param_groups[0]
    set_rate(group, 0.25)
    assert group["lr"] == 0.25
    elsewhere = copy.deepcopy(optimiser.state_dict())
    elsewhere["param_groups"][0] |= {"lr": torch.tensor(9.0), "capturable": True}
    optimiser.load_state_dict(for_optimiser(elsewhere, optimiser))
    assert optimiser.param_groups[0]["lr"] == 0.25
    assert optimiser.param_groups[0]["capturable"] is False


@pytest.mark.parametrize("entropy", [livi.Exact(), livi.Lanczos(num_probes=2, tolerance=1e-6)])
def test_an_entropy_in_its_captured_form_gives_the_same(entropy):
    torch.manual_seed(0)
    generator = livi.MLP(6, 20, hidden=(8,), skip=True, offset=True).double()
    z, noise = torch.randn(3, 6, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    plain = entropy(generator, z, noise, torch.Generator().manual_seed(1))
    captured = entropy.captured(plain.report.products)(generator, z, noise, torch.Generator().manual_seed(1))
    assert bool(captured.report.converged.all())
    torch.testing.assert_close(captured.nats, plain.nats, rtol=1e-9, atol=1e-9)


def test_a_captured_exact_entropy_reports_where_it_would_have_needed_qr():
    ill = torch.diag(torch.tensor([1e8, 1.0, 1e-3], dtype=torch.float64))
    z = torch.zeros(1, 3, dtype=torch.float64)
    noise = torch.tensor(1e-4, dtype=torch.float64)
    estimate = livi.Exact().captured(3)(lambda rows: rows @ ill.mT, z, noise)
    assert not bool(estimate.report.converged.any())


def test_a_recording_that_fails_gives_the_entropy_its_eager_form_back(monkeypatch):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    plan = livi.plan(net, regression(20), livi.Gaussian(), recipe=SHORT, last_layer="sampled")
    trainer = Trainer(plan.bound, plan.data, plan.recipe)
    forms = []

    def fail(stepper, batch, how):
        stepper.prepare(*how)
        forms.append(plan.bound.entropy)
        raise CaptureError("nothing to record on")

    monkeypatch.setattr(
        Stepper, "_ready", lambda stepper, _, how: how not in stepper.refused and stepper.taken.total() > 3
    )
    monkeypatch.setattr(Stepper, "_record", fail)
    trainer.run()
    assert forms == [livi.Exact().captured(0)] * 2  # a step that is logged, and one that is not
    assert plan.bound.entropy == livi.Exact()
    assert trainer.stepper.reason == "nothing to record on"
    assert trainer.step == SHORT.steps


@pytest.mark.parametrize("solve", [torch.cholesky_solve, torch.vmap(torch.cholesky_solve)])
def test_what_ends_the_process_while_it_is_recorded_is_refused(solve):
    factor, right = torch.eye(3).repeat(4, 1, 1), torch.ones(4, 3, 2, requires_grad=True)
    with WithoutMagma():
        torch.cholesky_solve(right[0], factor[0])  # one alone goes elsewhere
        torch.linalg.solve_triangular(factor, right, upper=False).sum().backward()
        with pytest.raises(CaptureError, match=r"a batch of torch.cholesky_solve.*solve_triangular, twice, can"):
            solve(right, factor)
        with pytest.raises(CaptureError, match=r"a batch of torch.cholesky_inverse"):
            torch.cholesky_inverse(factor)
        large = torch.eye(513).expand(9, -1, -1)
        torch.linalg.solve_triangular(large[:8], large[:8, :, :1], upper=False)
        with pytest.raises(CaptureError, match="of more than 512 rows"):
            torch.linalg.solve_triangular(large, large[..., :1], upper=False)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize(
    ("make", "likelihood", "options"),
    [
        (lambda: (nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 3)), livi.Categorical(), {}),
        (lambda: (nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), livi.Categorical(), {"components": 2}),
        (lambda: (nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), livi.Gaussian(), {"last_layer": "exact"}),
        (lambda: (nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), livi.Gaussian(), {"entropy": livi.Lanczos()}),
    ],
    ids=["labels given features", "batch norm", "exact last layer", "lanczos"],
)
def test_our_own_steps_are_free_of_it(make, likelihood, options):
    torch.manual_seed(0)
    data = regression() if isinstance(likelihood, livi.Gaussian) else classes()
    plan = livi.plan(nn.Sequential(*make()), data, likelihood, recipe=replace(SHORT, steps=3), **options)
    if "last_layer" not in options and isinstance(likelihood, livi.Categorical) and "components" not in options:
        assert plan.problem.integrated is not None  # the last layer, whose solves once were among them
    with WithoutMagma():
        begin(plan, 0)
        Trainer(plan.bound, plan.data, plan.recipe).run()


def test_a_recording_that_breaks_off_takes_the_others_with_it(monkeypatch):
    stepper = Stepper(lambda _, __: None, list)
    stepper.recordings["shapes", ("a",)] = object()

    def fail(*_):
        raise capture._BrokenOffError("")

    monkeypatch.setattr(Stepper, "_ready", lambda stepper, _, how: how not in stepper.refused)
    monkeypatch.setattr(Stepper, "_record", fail)
    stepper((torch.ones(2), torch.ones(2)), "b")
    assert not stepper.recordings
    assert stepper.refused == {("b",): "_BrokenOffError"}


def test_steps_of_other_ways_keep_their_recordings_when_one_is_taken_otherwise(monkeypatch):
    taken, recorded = [], []

    class Recording:
        def __init__(self, how):
            recorded.append(how)

        def replay(self, _):
            pass

    monkeypatch.setattr(Stepper, "_record", lambda _, __, how: Recording(how))
    monkeypatch.setattr(capture, "_shapes", lambda _: "as on a GPU")
    stepper = Stepper(lambda _, how: taken.append(how), list)
    batch = (torch.ones(2), torch.ones(2))
    for _ in range(4):
        stepper(batch, "with")
        stepper(batch, "without")
    assert sorted(recorded) == [("with",), ("without",)]
    taken.clear()
    stepper.reset(lambda how: how == "with")
    for _ in range(3):
        stepper(batch, "with")
        stepper(batch, "without")
    assert taken == ["with"]  # which tells what the new recording needs
    assert recorded[2:] == [("with",)]
    stepper.reset()
    assert not stepper.recordings


# --- on a GPU -------------------------------------------------------------------------------------


def mlp(inputs=2, outputs=1, width=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs)).cuda()


def convolutional():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)]
    return nn.Sequential(*layers).cuda()


def regression(rows=60):
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(1))
    return x, x[:, 0].sin() + 0.1 * x[:, 1]


def classes(rows=101, shape=(2,)):
    x = torch.randn(rows, *shape, generator=torch.Generator().manual_seed(1))
    return x, (x.flatten(1)[:, 0] > 0).long() + (x.flatten(1)[:, 1] > 1).long()


SHORT = livi.Recipe(steps=60, map_steps=30, map_restarts=2, num_samples=8, num_entropy_samples=2)

PROBLEMS = {
    "small": lambda: (mlp(), regression(), livi.Gaussian(), {}),
    "mixture": lambda: (mlp(), regression(), livi.Gaussian(), {"components": 2}),
    "two batch shapes": lambda: (mlp(outputs=3), classes(), livi.Categorical(), {"batch_size": 30}),
    "yes or no": lambda: (mlp(), (classes()[0], (classes()[1] > 0).float()), livi.Bernoulli(), {}),
    "batch norm": lambda: (convolutional(), classes(shape=(1, 8, 8)), livi.Categorical(), {"batch_size": 50}),
    "learned noise": lambda: (mlp(), regression(), livi.Gaussian(), {"noise": livi.DiagonalNoise}),
    "lanczos": lambda: (
        mlp(),
        regression(),
        livi.Gaussian(),
        {
            "generator": lambda layout: livi.MMNN.for_layout(layout, budget=4.0, offset=True),
            "noise": livi.FixedNoise(0.05),
            "entropy": livi.Lanczos(num_probes=1, tolerance=0.1, max_iterations=30),
        },
    ),
    "averaged and clipped": lambda: (
        mlp(),
        regression(),
        livi.Gaussian(),
        {"recipe": livi.Recipe(steps=60, map_steps=30, num_samples=8, averaging=0.9, clip_factor=2.0)},
    ),
    "exact last layer": lambda: (mlp(), regression(), livi.Gaussian(), {"last_layer": "exact"}),
    "labels given features": lambda: (mlp(outputs=3, width=64), classes(), livi.Categorical(), {}),
    "family": lambda: (mlp(), regression(), livi.Gaussian(), {"family": MultiplicativeFlow, "last_layer": "sampled"}),
    "half precision": lambda: (
        mlp(),
        regression(),
        livi.Gaussian(),
        {"autocast": torch.bfloat16, "last_layer": "sampled"},
    ),
}


def fitted(name, capture, **more):
    net, data, likelihood, options = PROBLEMS[name]()
    if name == "learned noise":
        options = {"noise": lambda layout: livi.DiagonalNoise(layout.num_params, 0.03)}
    options = {"recipe": SHORT} | options | more
    return livi.fit(net, data, likelihood, capture=capture, progress=False, **options)


@on_gpu
@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_captured_fit_gives_what_an_eager_one_gives(name):
    eager, captured = fitted(name, False), fitted(name, True)
    rows = [[row[key] for key in ("bound", "log_likelihood", "log_prior", "entropy")] for row in eager.history]
    again = [[row[key] for key in ("bound", "log_likelihood", "log_prior", "entropy")] for row in captured.history]
    scale = torch.tensor(rows).abs().amax(0)
    tolerance = 0.05 if name in ("half precision", "lanczos") else 2e-3  # CG stops after another number of iterations
    assert bool(((torch.tensor(rows) - torch.tensor(again)).abs() <= tolerance * scale).all())


@on_gpu
@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_fit_that_reads_results_back_runs_eagerly_unless_capture_is_demanded():
    net, data, _, _ = PROBLEMS["small"]()

    def log_prob(outputs, targets):
        values = -(outputs.squeeze(-1) - targets).square()
        assert float(values.detach().sum()) < 1.0
        return values

    posterior = livi.fit(net, data, livi.FunctionLikelihood(log_prob), recipe=SHORT, progress=False)
    assert len(posterior.history) == 6
    with pytest.raises(CaptureError, match="can be recorded"):
        livi.fit(net, data, livi.FunctionLikelihood(log_prob), recipe=SHORT, progress=False, capture=True)
    with pytest.raises(CaptureError, match="SmallestSingularValue"):
        livi.fit(net, data, livi.Gaussian(), entropy=livi.SmallestSingularValue(), recipe=SHORT, capture=True)
    # nothing is left behind: torch's own random numbers and another fit still work
    torch.randn(3, device="cuda")
    fitted("small", True)


@on_gpu
@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_recording_that_gives_something_else_is_not_used():
    parameter = torch.zeros((), device="cuda")
    calls = []

    def step(batch):  # what the CPU adds to is baked into a recording
        calls.append(1)
        parameter.add_(batch[1].sum() * len(calls))
        return parameter

    stepper = Stepper(step, lambda: [parameter])
    batch = (torch.ones(2, device="cuda"), torch.ones(2, device="cuda"))
    for _ in range(8):
        stepper(batch)
    assert "differs" in stepper.reason
    assert not stepper.captured


@on_gpu
def test_a_recording_that_breaks_off_leaves_all_random_numbers_usable():
    rng = torch.Generator("cuda").manual_seed(0)
    total = torch.zeros((), device="cuda")

    def step(batch):
        total.add_(torch.randn((), device="cuda", generator=rng) + batch[1].sum())
        torch.cuda.synchronize()  # which only a recording forbids
        return total

    stepper = Stepper(step, lambda: [total], rng)
    batch = (torch.ones(2, device="cuda"), torch.zeros(2, device="cuda"))
    for _ in range(8):
        stepper(batch)
    assert stepper.reason
    assert not stepper.captured
    again = torch.Generator("cuda").manual_seed(0)
    expected = sum(torch.randn((), device="cuda", generator=again) for _ in range(8))
    torch.testing.assert_close(total, expected)
    assert bool(torch.isfinite(torch.randn(3, device="cuda")).all())


@on_gpu
def test_recordings_of_other_ways_still_hold_when_one_is_made_anew():
    parameter = torch.zeros(4, device="cuda")
    amounts = {"a": 1.0, "b": 10.0}
    stepper = Stepper(lambda _, how: parameter.add_(amounts[how]).clone(), lambda: [parameter], capture=True)
    batch = (torch.ones(2, device="cuda"), torch.ones(2, device="cuda"))
    for _ in range(6):
        stepper(batch, "a")
        stepper(batch, "b")
    assert len(stepper.recordings) == 2
    amounts["b"] = 100.0
    stepper.reset(lambda how: how == "b")
    assert len(stepper.recordings) == 1
    for _ in range(5):
        stepper(batch, "a")
        assert stepper.captured
        stepper(batch, "b")
    assert stepper.captured
    assert parameter.tolist() == [6 * 11.0 + 5 * 101.0] * 4


@on_gpu
@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_bad_label_in_a_later_batch_is_named_though_steps_are_replayed():
    net = mlp(outputs=3)
    x, y = classes(rows=64)
    with pytest.raises(ValueError, match="expected labels 0 to 2, got 7"):
        livi.fit(
            net,
            SpoiledBatches(x, y, epoch=10),
            livi.Categorical(),
            num_data=64,
            recipe=SHORT,
            progress=False,
            capture=True,
        )


@on_gpu
@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_captured_fit_resumes_and_moves_between_devices(tmp_path):
    whole = fitted("small", True)
    checkpoint = tmp_path / "run.livi"

    class StopError(Exception):
        pass

    net, data, likelihood, _ = PROBLEMS["small"]()
    plan = livi.plan(net, data, likelihood, recipe=SHORT)
    trainer = Trainer(
        plan.bound,
        plan.data,
        plan.recipe,
        checkpoint=checkpoint,
        facts=plan.summary(),
        capture=True,
        checkpoint_every=30,
    )
    trainer.start_log_likelihood = begin(plan, 0).log_likelihood

    def stop_at_30():
        Trainer.save(trainer)
        raise StopError

    trainer.save = stop_at_30
    with pytest.raises(StopError):
        trainer.run()
    assert trainer.stepper.recordings
    resumed = fitted("small", True, checkpoint=checkpoint)
    torch.testing.assert_close(
        torch.tensor(resumed.history[-1]["bound"]), torch.tensor(whole.history[-1]["bound"]), rtol=1e-2, atol=0.5
    )
    checkpoint.unlink()
    trainer.checkpoint = checkpoint
    Trainer.save(trainer)
    on_cpu = livi.fit(net.cpu(), data, likelihood, recipe=SHORT, progress=False, checkpoint=checkpoint)
    assert on_cpu.layout.device.type == "cpu"
    assert on_cpu.history[-1]["step"] == 60
