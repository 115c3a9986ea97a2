"""A quick fit, and callbacks that record, stop or change it."""

import torch

import livi
from livi.inference import Recipe
from support.short_fits import data, draws, network

QUICK = Recipe(steps=60, map_steps=30, map_restarts=2, num_samples=8, num_entropy_samples=2)


def quick_fit(**options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "sampled"} | options
    return livi.fit(network(), data(), livi.Gaussian(), **options)


def same(one, other):
    torch.testing.assert_close(draws(one), draws(other), rtol=0, atol=0)


class Noted(livi.Callback):
    """Records every call."""

    def __init__(self):
        self.calls = []

    def on_start(self, run):
        self.calls.append(("start", run.step))

    def on_step(self, run):
        self.calls.append(("step", run.step))

    def on_epoch(self, run):
        self.calls.append(("epoch", run.epoch))

    def on_validation(self, run):
        self.calls.append(("validation", run.step))

    def on_end(self, run):
        self.calls.append(("end", run.step))

    def of(self, kind):
        return [number for name, number in self.calls if name == kind]


class At(livi.Callback):
    """Runs an action after a given step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step(self, run):
        if run.step == self.step:
            self.action(run)


class Scripted(livi.Callback):
    """Replaces the scores of the validation by given ones, before other callbacks see them."""

    def __init__(self, scores, name="validation_nll"):
        self.scores, self.name = scores, name

    def on_step(self, run):
        if run.validated:
            run.row[self.name] = self.scores[run.step]


class StopHere(Exception):  # noqa: N818
    pass


def stop_here(run):
    raise StopHere


VALIDATED = {"validation": data(8, seed=2), "validate_every": 10}
