"""Checkpoints: an interrupted or killed fit goes on bit for bit."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from support.short_fits import QUICK, data, draws, quick_fit
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.inference import Trainer


class StopHere(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("stop_at", [20, 33])
def test_a_resumed_fit_continues_bit_for_bit(tmp_path, monkeypatch, batch_size, stop_at):
    options = {"batch_size": batch_size, "checkpoint_every": 11}
    whole = quick_fit(checkpoint=tmp_path / "whole.livi", **options)
    taken = Trainer._step

    def interrupted(self, batch):
        if self.step == stop_at:
            raise StopHere
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(StopHere):
        quick_fit(checkpoint=tmp_path / "parts.livi", **options)
    monkeypatch.setattr(Trainer, "_step", taken)
    resumed = quick_fit(checkpoint=tmp_path / "parts.livi", **options)
    torch.testing.assert_close(draws(resumed), draws(whole), rtol=0, atol=0)
    assert resumed.history == whole.history


def test_a_resumed_fit_from_a_shuffling_loader_continues_bit_for_bit(tmp_path, monkeypatch):
    loader = DataLoader(TensorDataset(*data()), batch_size=5, shuffle=True)
    whole = quick_fit(data=loader)
    taken = Trainer._step

    def interrupted(self, batch):
        if self.step == 27:
            raise StopHere
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(StopHere):
        quick_fit(data=loader, checkpoint=tmp_path / "c.livi", checkpoint_every=9)
    monkeypatch.setattr(Trainer, "_step", taken)
    torch.rand(7)  # whatever else drew from the global stream meanwhile
    resumed = quick_fit(data=loader, checkpoint=tmp_path / "c.livi", checkpoint_every=9)
    torch.testing.assert_close(draws(resumed), draws(whole), rtol=0, atol=0)


def test_a_fit_killed_while_it_writes_resumes_bit_for_bit(tmp_path):
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path.parent)!r})
        import torch
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from support.short_fits import quick_fit, draws
        posterior = quick_fit(checkpoint=sys.argv[1], checkpoint_every=1)
        torch.save(draws(posterior), sys.argv[1] + ".draws")
        """
    )
    whole = draws(quick_fit())
    checkpoint = tmp_path / "killed.livi"
    for delay in (0.05, 0.4):
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script, str(checkpoint)])
        while not checkpoint.exists() and process.poll() is None:
            pass  # a checkpoint is written at every step from here on, so the kill falls into or beside a write
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(checkpoint)], check=True)
    torch.testing.assert_close(torch.load(f"{checkpoint}.draws", weights_only=True), whole, rtol=0, atol=0)


def test_a_checkpoint_of_another_fit_is_an_error_and_survives(tmp_path):
    path = tmp_path / "c.livi"
    quick_fit(checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="steps was 60 and is 50"):
        quick_fit(checkpoint=path, recipe=replace(QUICK, steps=50))
    with pytest.raises(ValueError, match="num_data was 24 and is 30"):
        quick_fit(checkpoint=path, data=data(30))
    with pytest.raises(ValueError, match="the data's first batch holds other examples"):
        quick_fit(checkpoint=path, data=(data()[0], -data()[1]))
    with pytest.raises(ValueError, match=r"specs\.2.* was 1.0 and is 9.0"):
        quick_fit(checkpoint=path, prior=livi.Normal(9.0))
    with pytest.raises(ValueError, match="expected seed 0 as before, got 7"):
        quick_fit(checkpoint=path, seed=7)
    assert path.read_bytes() == before


def test_a_checkpoint_is_never_written_with_broken_weights(tmp_path, monkeypatch):
    taken, poisoned = Trainer._step, []

    def poison(self, batch):
        terms = taken(self, batch)
        if self.step == 23 and not poisoned:
            poisoned.append(True)
            with torch.no_grad():
                next(self.bound.family.parameters()).fill_(float("nan"))
        return terms

    monkeypatch.setattr(Trainer, "_step", poison)
    posterior = quick_fit(checkpoint=tmp_path / "c.livi", checkpoint_every=25)
    assert poisoned
    assert torch.isfinite(draws(posterior)).all()
    assert torch.equal(draws(quick_fit(checkpoint=tmp_path / "c.livi", checkpoint_every=25)), draws(posterior))
