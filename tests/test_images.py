"""Rotated and corrupted images, ordinary training, and scores on out-of-distribution images."""

import colorsys
import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from support.picture_files import write_cifar, write_mnist
from torch import nn
from torch.nn import functional as F

from livi.experiments.deadlines import Deadline, OutOfTime
from livi.experiments.images import training as trainings
from livi.experiments.images.problems import PROBLEMS, build, load
from livi.experiments.images.scores import Answers, scores
from livi.experiments.images.shifts import CORRUPTIONS, ROTATION, brightness, contrast, gaussian_blur, rotated
from livi.experiments.images.training import Training, train
from livi.inference.recipe import cosine
from livi.model.data import TensorData, epoch_seed
from livi.model.likelihoods import Categorical
from livi.posterior import metrics
from livi.posterior.prediction import ClassificationPrediction


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def random_pictures(count=4, channels=3, side=12):
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(0))


# --- drift ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("degrees", "turns"), [(90.0, 1), (180.0, 2)])
def test_quarter_turns_move_pixels_only(degrees, turns):
    pictures = random_pictures()
    torch.testing.assert_close(rotated(pictures, degrees), torch.rot90(pictures, turns, (2, 3)), atol=1e-5, rtol=0)
    assert ROTATION["rotation"](pictures, 0.0) is pictures


@pytest.mark.parametrize("severity", [1.0, 5.0])
def test_blur_contrast_and_brightness_are_those_published(severity):
    pictures, place = random_pictures(), int(severity) - 1
    std = (0.4, 0.6, 0.7, 0.8, 1.0)[place]
    blurred = gaussian_filter(pictures.numpy(), (0, 0, std, std), mode="nearest", truncate=4.0)
    torch.testing.assert_close(
        gaussian_blur(pictures, severity), torch.tensor(np.floor(255 * blurred) / 255), atol=5e-3, rtol=0
    )
    share, means = (0.75, 0.5, 0.4, 0.3, 0.15)[place], pictures.mean((2, 3), keepdim=True)
    torch.testing.assert_close(contrast(pictures, severity), means + share * (pictures - means), atol=1 / 255, rtol=0)
    more = (0.05, 0.1, 0.15, 0.2, 0.3)[place]
    hue, saturation, value = colorsys.rgb_to_hsv(*pictures[0, :, 3, 5].tolist())
    expected = torch.tensor(colorsys.hsv_to_rgb(hue, saturation, min(1.0, value + more)))
    torch.testing.assert_close(brightness(pictures, severity)[0, :, 3, 5], expected, atol=1 / 255 + 1e-6, rtol=0)
    assert brightness(torch.zeros(1, 3, 2, 2), severity).unique().tolist() == pytest.approx(
        [math.floor(255 * more) / 255]
    )


def test_noises_have_their_published_size_and_are_the_same_every_time():
    grey = torch.full((50, 3, 16, 16), 0.5)
    for name, expected in (
        ("gaussian noise", 0.1),
        ("shot noise", math.sqrt(0.5 / 50)),
        ("impulse noise", math.sqrt(0.07 * 0.25)),
    ):
        noisy = CORRUPTIONS[name](grey, 5.0)
        assert torch.equal(noisy, CORRUPTIONS[name](grey, 5.0))
        assert (noisy - grey).std().item() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruptions_stay_between_0_and_1_and_grow(name):
    pictures = random_pictures(20)
    distances = [(CORRUPTIONS[name](pictures, level) - pictures).abs().mean().item() for level in range(6)]
    assert distances == sorted(distances)
    assert distances[0] == 0.0 < distances[1]
    worst = CORRUPTIONS[name](pictures, 5.0)
    assert worst.min() >= 0.0
    assert worst.max() <= 1.0


# --- problems -------------------------------------------------------------------------------------


def test_validation_pictures_are_training_pictures_that_are_not_trained_on(tmp_path):
    write_mnist(tmp_path)
    whole, part = (load(PROBLEMS["mnist"], tmp_path, part=part) for part in ("test", "validation"))
    assert (len(whole.train.labels), len(whole.scored.labels)) == (300, 100)
    assert (len(part.train.labels), len(part.scored.labels)) == (270, 30)
    joined = torch.cat([part.train.inputs, part.scored.inputs]).flatten(1)
    assert sorted(map(tuple, joined.tolist())) == sorted(map(tuple, whole.train.inputs.flatten(1).tolist()))


def test_inputs_are_standardised_plain_ones_are_not_and_missing_sets_are_left_out(tmp_path):
    write_cifar(tmp_path)
    (tmp_path / "svhn/test.npz").unlink()
    sets = load(PROBLEMS["cifar10"], tmp_path)
    assert list(sets.others) == ["cifar100", "tiny-imagenet"]
    mean, std = (torch.tensor(values)[:, None, None] for values in (sets.problem.mean, sets.problem.std))
    torch.testing.assert_close(sets.scored.inputs * std + mean, sets.plain)
    torch.testing.assert_close(sets.shifted("contrast", 0.0).inputs, sets.scored.inputs)


def test_weights_follow_from_the_seed_and_leave_the_global_stream_alone():
    state = torch.random.get_rng_state()
    one, same, other = (build(PROBLEMS["cifar10"], seed, quick=True, norm="group") for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(one[0].weight, same[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)


# --- training -------------------------------------------------------------------------------------


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3))


def labels(count):
    return torch.arange(count) % 3


def test_training_is_sgd_with_nesterov_momentum_and_weight_decay(monkeypatch):
    monkeypatch.setattr(trainings, "CropFlip", lambda: lambda inputs, _: inputs)
    x, y, how = random_pictures(30), labels(30), Training(epochs=3, batch_size=10)
    found = train(small_net(), x, y, how, seed=5).net
    net = small_net().train()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    for step, (inputs, targets) in enumerate(
        batch for epoch in range(3) for batch in TensorData(x, y, 10).epoch(epoch_seed(5, epoch))
    ):
        optimiser.param_groups[0]["lr"] = 0.1 * min(1.0, (step + 1) / 3) * cosine(step / 9)
        optimiser.zero_grad()
        F.cross_entropy(net(inputs), targets).backward()
        optimiser.step()
    for name, value in net.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, atol=1e-4, rtol=1e-3)
    assert not found.training


def test_training_goes_on_where_it_stopped_and_a_finished_network_is_only_read(tmp_path, monkeypatch):
    x, y, how = random_pictures(30), labels(30), Training(epochs=3, batch_size=10)
    whole, path = train(small_net(), x, y, how, seed=5), tmp_path / "net.livi"
    deadline, epochs = Deadline(0.0), []

    def passed(self):
        return len(epochs) >= 2

    monkeypatch.setattr(Deadline, "passed", passed)
    with pytest.raises(OutOfTime):
        train(small_net(), x, y, how, seed=5, path=path, deadline=deadline, say=epochs.append)
    monkeypatch.undo()
    torch.set_default_dtype(torch.float32)
    again = train(small_net(), x, y, how, seed=5, path=path, say=epochs.append)
    assert len(epochs) == 3
    for name, value in whole.net.state_dict().items():
        assert torch.equal(again.net.state_dict()[name], value)
    read = train(small_net(), x, y, how, seed=5, path=path, say=epochs.append)
    assert (len(epochs), read.seconds) == (3, again.seconds)
    with pytest.raises(ValueError, match="expected a training like this one"):
        train(small_net(), x, y, Training(epochs=4, batch_size=10), seed=5, path=path)


# --- scores ---------------------------------------------------------------------------------------


class Brightest:
    """Is sure of the class whose number is the mean brightness in tenths, the surer the brighter a picture is."""

    def predict(self, inputs):
        level = inputs.mean((1, 2, 3))
        logits = torch.zeros(2, len(inputs), 10)
        logits[:, torch.arange(len(inputs)), (10 * level).long().clamp(0, 9)] = 20.0 * level
        return ClassificationPrediction(logits, Categorical())


def test_scores_are_those_of_the_averaged_probabilities(tmp_path):
    write_mnist(tmp_path)
    sets = load(PROBLEMS["mnist"], tmp_path)
    found = scores(Brightest(), sets)
    whole = Brightest().predict(sets.scored.inputs)
    for name in ("accuracy", "nll", "ece", "brier"):
        assert found[name] == pytest.approx(metrics.METRICS[name](whole, sets.scored.labels), abs=1e-6)
    noise = Brightest().predict(sets.others["kmnist"])
    assert found["others"]["kmnist"]["confidence"] == pytest.approx(noise.confidence.mean().item())
    assert found["others"]["kmnist"]["auroc"] < 0.01  # noise is brighter than the pictures, hence answered surely
    assert found["others"]["kmnist"]["fpr95"] == 1.0
    assert found["others_mean"]["auroc"] == pytest.approx(np.mean([one["auroc"] for one in found["others"].values()]))
    rotation = found["shifts"]["rotation"]
    assert rotation["levels"] == [15.0 * step for step in range(13)]
    assert rotation["nll"][0] == pytest.approx(found["nll"], abs=1e-6)
    curve, entropy = found["entropy"]["scored"], whole.entropy.double()
    assert curve[50] == pytest.approx((entropy <= 0.5 * math.log(10)).double().mean().item(), abs=0.02)
    assert (curve[-1], len(curve)) == (1.0, 101)


def test_fpr95_is_the_share_of_ood_inputs_that_pass_where_95_of_100_others_do():
    familiar = torch.arange(100.0)
    assert metrics.fpr95(torch.tensor([93.0, 94.0, 95.0, 200.0]), familiar) == 0.5
    rng = torch.Generator().manual_seed(0)
    same = torch.rand(2, 20_000, generator=rng)
    assert metrics.fpr95(*same) == pytest.approx(0.95, abs=0.01)


def test_answers_in_chunks_are_the_same(monkeypatch):
    inputs = random_pictures(25, channels=1)
    whole = Answers.of(Brightest(), inputs)
    monkeypatch.setattr("livi.experiments.images.scores.CHUNK", 7)
    assert torch.equal(Answers.of(Brightest(), inputs).logs, whole.logs)
