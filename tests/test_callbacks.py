"""Callbacks: when they are called, what they see, how they stop a fit, and that they survive a checkpoint."""

from dataclasses import replace

import pytest
import torch
from support.short_fits import data, draws, network
from support.watching_callbacks import QUICK, VALIDATED, At, Noted, Scripted, StopHere, quick_fit, same, stop_here

import livi
from livi.inference import Trainer
from livi.inference import loop as loop_module
from livi.posterior.storage import read_checkpoint, write_checkpoint

# --- calls ----------------------------------------------------------------------------------------


def test_every_occasion_is_called_in_its_order():
    noted = Noted()
    quick_fit(callbacks=[noted], batch_size=8, validation=data(6, seed=2), validate_every=20)
    assert noted.calls[0] == ("start", 0)
    assert noted.calls[-1] == ("end", 60)
    assert noted.of("step") == list(range(1, 61))
    assert noted.of("epoch") == list(range(1, 21))  # of three batches
    assert noted.of("validation") == [20, 40, 60]
    assert noted.calls.index(("step", 20)) < noted.calls.index(("validation", 20)) < noted.calls.index(("step", 21))


def test_a_function_is_given_each_logged_row():
    rows = []
    posterior = quick_fit(callbacks=[rows.append])
    assert rows == posterior.history
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50, 60]


def test_a_run_shows_the_fit():
    seen = []

    def look(run):
        seen.append((run.step, run.steps, run.epoch, run.row, len(run.history), run.validated, run.metrics))

    posterior = quick_fit(callbacks=[At(7, look), At(20, look)], batch_size=12)
    assert seen[0] == (7, 60, 3, None, 0, False, ())
    assert seen[1] == (20, 60, 10, posterior.history[1], 2, False, ())


def test_callbacks_change_nothing_about_a_fit():
    same(quick_fit(callbacks=[Noted(), At(30, lambda run: run.posterior().predict(data()[0]))]), quick_fit())


@pytest.mark.parametrize("options", [{}, {"last_layer": "exact"}, {"components": 2}], ids=str)
def test_the_posterior_of_a_run_is_a_copy_of_the_one_that_the_fit_would_end_with(options):
    kept = []
    quick_fit(callbacks=[At(60, lambda run: kept.append(run.posterior()))], **options)
    final = quick_fit(**options)
    same(kept[0], final)
    halfway = []
    after = quick_fit(
        callbacks=[At(30, lambda run: halfway.append((run.posterior(), draws(run.posterior()))))], **options
    )
    torch.testing.assert_close(draws(halfway[0][0]), halfway[0][1], rtol=0, atol=0)  # it did not move along
    same(after, final)
    assert halfway[0][0].layout.module is not after.layout.module


def test_the_posterior_of_a_run_has_the_averages():
    kept = []
    recipe = replace(QUICK, averaging=0.9)
    final = quick_fit(callbacks=[At(60, lambda run: kept.append(run.posterior()))], recipe=recipe)
    same(kept[0], final)


def test_a_posterior_of_a_bare_trainer_is_an_error():
    plan = livi.plan(network(), data(), livi.Gaussian(), last_layer="sampled", recipe=QUICK)
    trainer = Trainer(plan.bound, plan.data, plan.recipe)
    trainer.callbacks.start(trainer)
    with pytest.raises(RuntimeError, match=r"posterior: expected a run of livi\.fit"):
        trainer.callbacks.run.posterior()


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (3, "callbacks: expected a list, got int"),
        (Noted(), "callbacks: expected a list, got Noted"),
        ([Noted], "got the class Noted; make one of it with"),
        (["csv"], "got str; derive its class"),
    ],
    ids=["number", "alone", "class", "word"],
)
def test_what_is_no_callback_is_an_error(callbacks, message):
    with pytest.raises(TypeError, match=message):
        quick_fit(callbacks=callbacks)


def test_a_method_that_is_never_called_is_warned_of_with_the_nearest():
    class Foreign(livi.Callback):
        def on_epoch_end(self, run):
            raise AssertionError(run)

    with pytest.warns(
        livi.FitWarning, match=r"Foreign.on_epoch_end is never called, .* did you mean 'on_epoch'\?"
    ) as heard:
        quick_fit(callbacks=[Foreign()])
    assert heard[0].filename == quick_fit.__code__.co_filename  # where fit was called


def test_a_function_that_a_callback_holds_is_its_own_affair():
    class Holding(livi.Callback):
        def __init__(self):
            self.on_improvement = print

    quick_fit(callbacks=[Holding()])  # warnings are errors


def test_a_diverging_fit_goes_back_and_shows_its_steps_again(monkeypatch):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 20)
    taken, poisoned = Trainer._step, []

    def poison(self, batch):
        terms = taken(self, batch)
        if self.step == 38 and not poisoned:
            poisoned.append(self.step)
            next(self.bound.parameters()).data.fill_(float("nan"))
        return terms

    monkeypatch.setattr(Trainer, "_step", poison)
    noted = Noted()
    posterior = quick_fit(callbacks=[noted])
    assert poisoned == [38]
    assert noted.of("step") == [*range(1, 40), *range(21, 61)]
    assert [row["step"] for row in posterior.history] == [10, 20, 30, 40, 50, 60]


# --- stopping -------------------------------------------------------------------------------------


def test_a_callback_stops_a_fit_and_the_posterior_says_so():
    noted = Noted()
    posterior = quick_fit(callbacks=[At(37, lambda run: run.stop("enough")), noted])
    assert noted.of("step")[-1] == 37
    assert noted.of("end") == [37]
    assert posterior.plan["stopped_at"] == 37
    assert posterior.plan["stopped_because"] == "enough"
    assert "stopped early at step 37 of 60" in repr(posterior)
    assert quick_fit().plan["stopped_at"] is None


def test_a_fit_is_not_stopped_at_parameters_that_are_not_finite(monkeypatch):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 20)
    poisoned = []

    def stop(run):
        if not poisoned:
            poisoned.append(run.step)
            next(run._training.bound.parameters()).data.fill_(float("nan"))
        run.stop("enough")

    noted = Noted()
    posterior = quick_fit(callbacks=[At(33, stop), noted])
    assert noted.of("step") == [*range(1, 40), *range(21, 34)]
    assert torch.isfinite(draws(posterior)).all()
    assert posterior.plan["stopped_at"] == 33


def test_a_stopped_fit_stays_so_unless_it_is_lengthened(tmp_path):
    path = tmp_path / "c.livi"
    stopped = quick_fit(callbacks=[At(37, lambda run: run.stop("enough"))], checkpoint=path)
    again = quick_fit(checkpoint=path)
    same(again, stopped)
    assert again.plan["stopped_at"] == 37
    longer = quick_fit(checkpoint=path, recipe=None, steps=80)
    assert longer.history[-1]["step"] == 80
    assert longer.plan["stopped_at"] is None


# Warm from step 18 on; the best of what counts is at 40.
SCORES = {10: 0.1, 20: 5.0, 30: 4.0, 40: 1.0, 50: 2.0, 60: 3.0}


def test_early_stopping_keeps_the_best_and_does_not_count_the_warm_up():
    kept = []
    callbacks = [Scripted(SCORES), livi.EarlyStopping(patience=1), At(40, lambda run: kept.append(run.posterior()))]
    stopping = callbacks[1]
    posterior = quick_fit(callbacks=callbacks, **VALIDATED)
    assert (stopping.best, stopping.best_step) == (1.0, 40)
    assert posterior.plan["stopped_at"] == 50
    assert posterior.plan["parameters_of"] == 40
    assert "no better nll in 1 validations, best 1 at step 40" in posterior.plan["stopped_because"]
    assert repr(posterior).endswith("stopped early at step 50 of 60, with the parameters of step 40)")
    same(posterior, kept[0])


def test_the_best_is_kept_at_the_end_too():
    kept, scores = [], SCORES | {50: 3.0, 60: 2.0}
    stopping = livi.EarlyStopping(patience=9)
    callbacks = [Scripted(scores), stopping, At(40, lambda run: kept.append(run.posterior()))]
    posterior = quick_fit(callbacks=callbacks, **VALIDATED)
    assert posterior.plan["stopped_at"] is None
    assert posterior.plan["parameters_of"] == 40
    same(posterior, kept[0])
    assert quick_fit(callbacks=[Scripted(SCORES | {60: 0.5}), stopping], **VALIDATED).plan["parameters_of"] is None
    assert (stopping.best, stopping.best_step) == (0.5, 60)  # nothing is left of the fit before


def test_early_stopping_knows_which_way_is_better_and_passes_over_nan():
    stopping = livi.EarlyStopping(patience=2, metric="rmse")
    scores = {10: 0.0, 20: float("nan"), 30: 2.0, 40: 1.0, 50: float("nan"), 60: 5.0}
    quick_fit(callbacks=[Scripted(scores, "validation_rmse"), stopping], **VALIDATED)
    assert (stopping.best, stopping.best_step) == (1.0, 40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"EarlyStopping: expected validation data to score on, got none; pass validation=0\.1"),
        ({**VALIDATED, "metric": "accuracy"}, "expected metric to be one of nll, rmse, got 'accuracy'"),
    ],
    ids=["no validation", "no such score"],
)
def test_early_stopping_without_its_score_is_an_error_before_any_work(options, message, monkeypatch):
    monkeypatch.setattr("livi.inference.map_fits.MapStart.run", None)
    options = dict(options)
    stopping = livi.EarlyStopping(metric=options.pop("metric", "nll"))
    with pytest.raises(ValueError, match=message):
        quick_fit(callbacks=[stopping], **options)


@pytest.mark.parametrize("averaging", [None, 0.9])
@pytest.mark.parametrize("at", [33, 47])
def test_early_stopping_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, at, averaging):
    options = VALIDATED | {"recipe": replace(QUICK, averaging=averaging)}
    scores, path = SCORES | {50: 1.5}, tmp_path / "c.livi"
    whole = quick_fit(callbacks=[Scripted(scores), livi.EarlyStopping(patience=2)], **options)
    assert whole.plan["parameters_of"] == 40
    callbacks = [Scripted(scores), livi.EarlyStopping(patience=2), At(at, stop_here)]
    with pytest.raises(StopHere):
        quick_fit(callbacks=callbacks, checkpoint=path, checkpoint_every=15, **options)
    assert read_checkpoint(path)["state"]["step"] == at // 15 * 15
    for _ in range(2):  # the second time from a fit that is done
        resumed = quick_fit(callbacks=[Scripted(scores), livi.EarlyStopping(patience=2)], checkpoint=path, **options)
        same(resumed, whole)
        assert resumed.history == whole.history
        assert resumed.plan["parameters_of"] == 40


def test_a_checkpoint_from_before_there_were_callbacks_is_read(tmp_path):
    path, whole = tmp_path / "c.livi", quick_fit()
    with pytest.raises(StopHere):
        quick_fit(checkpoint=path, checkpoint_every=20, callbacks=[At(45, stop_here)])
    kept = read_checkpoint(path)
    for name in ("callbacks", "stopped", "steps"):
        del kept["state"][name]
    write_checkpoint(path, kept)
    same(quick_fit(checkpoint=path), whole)
    write_checkpoint(path, kept)
    stopping = livi.EarlyStopping()
    resumed = quick_fit(checkpoint=path, callbacks=[stopping], **VALIDATED)
    assert stopping.best_step in (50, 60)
    assert resumed.history[:4] == whole.history[:4]


def test_ctrl_c_keeps_the_best_too(monkeypatch):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 20)

    def press(run):
        raise KeyboardInterrupt

    with pytest.warns(livi.FitWarning, match="interrupted"):
        posterior = quick_fit(
            callbacks=[Scripted(SCORES | {30: 0.5}), livi.EarlyStopping(), At(45, press)], **VALIDATED
        )
    assert posterior.plan["interrupted_at"] == 45
    assert posterior.plan["parameters_of"] == 30


def test_a_callback_s_own_state_is_in_the_checkpoint(tmp_path):
    class Counting(livi.Callback):
        def __init__(self):
            self.seen = 0

        def on_step(self, run):
            self.seen += run.step > 0

        def state(self):
            return {"seen": self.seen}

        def load(self, state):
            self.seen = state["seen"]

    path = tmp_path / "c.livi"
    with pytest.raises(StopHere):
        quick_fit(callbacks=[Counting(), Counting(), At(45, stop_here)], checkpoint=path, checkpoint_every=20)
    one, two = Counting(), Counting()
    quick_fit(callbacks=[one, two], checkpoint=path)
    assert (one.seen, two.seen) == (60, 60)
