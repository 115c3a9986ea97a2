"""Augmentation of batches on their device: what it gives, by which seed, and that a resumed fit does not notice."""

import pytest
import torch
from torch import nn

import livi
from livi.inference import Recipe, Trainer
from livi.model.data import CropFlip, NotGatheredError, as_data, gathered, some_inputs

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}
SHORT = Recipe(steps=30, map_steps=30, map_restarts=1, num_samples=4, num_entropy_samples=2)


class StopHere(Exception):  # noqa: N818
    pass


def numbered_pictures(count, side=5):
    """Every pixel of every picture is another number, none of them zero."""
    return 1.0 + torch.arange(count * 2 * side * side).reshape(count, 2, side, side)


def test_a_crop_is_a_window_of_the_padded_picture_mirrored_or_not():
    pictures = numbered_pictures(200)
    augmented = CropFlip(padding=2)(pictures, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(pictures, (2, 2, 2, 2))
    seen = set()
    for before, after in zip(padded, augmented, strict=True):
        windows = {
            (down, right, flip): window.flip(2) if flip else window
            for down in range(5)
            for right in range(5)
            for window in [before[:, down : down + 5, right : right + 5]]
            for flip in (False, True)
        }
        [place] = [place for place, window in windows.items() if torch.equal(window, after)]
        seen.add(place)
    assert len(seen) == pytest.approx(50 * (1 - (1 - 1 / 50) ** 200), abs=5)  # of 50 versions, all equally likely


@pytest.mark.parametrize("padding", [-1, 1.5, "4"])
def test_padding_is_a_number_of_pixels(padding):
    with pytest.raises(ValueError, match=f"padding: expected a whole number of pixels, 0 or more, got {padding!r}"):
        livi.CropFlip(padding)


@pytest.mark.parametrize(
    ("augment", "got"),
    [
        (True, "got True"),
        (livi.CropFlip, "got <class .*CropFlip'>"),
        (lambda images: images, r"got one of \(images\); random numbers come from the generator"),
    ],
)
def test_what_is_no_function_of_a_batch_and_a_generator_is_named(augment, got):
    images, labels = torch.zeros(6, 1, 4, 4), torch.arange(6) % 2
    with pytest.raises(
        TypeError, match=f"augment: expected a function of a batch of inputs and a torch.Generator.*{got}"
    ):
        livi.fit(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), (images, labels), livi.Categorical(), augment=augment)


def test_no_padding_and_no_flip_change_nothing():
    pictures = numbered_pictures(3)
    assert torch.equal(CropFlip(0, flip=False)(pictures, torch.Generator()), pictures)
    with pytest.raises(ValueError, match=r"expected a tensor \(batch, channels, height, width\), got \(3, 2\)"):
        CropFlip()(torch.zeros(3, 2), torch.Generator())


@pytest.mark.parametrize("batch_size", [None, 4])
def test_augmented_batches_follow_the_epoch_s_seed_and_the_first_batch_is_as_it_is(batch_size):
    pictures, labels = numbered_pictures(10), torch.arange(10)
    data = as_data((pictures, labels), batch_size=batch_size, augment=CropFlip(), **KIND)
    plain = as_data((pictures, labels), batch_size=batch_size, **KIND)
    first, again, other = ([inputs for inputs, _ in data.epoch(seed)] for seed in (3, 3, 4))
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))
    for (_, targets), (_, expected) in zip(data.epoch(3), plain.epoch(3), strict=True):
        assert torch.equal(targets, expected)
    assert torch.equal(data.first()[0], plain.first()[0])
    assert torch.equal(some_inputs(data, 10), torch.cat([inputs for inputs, _ in data.epoch(0)])[:10])


def test_batch_norm_statistics_are_of_pictures_as_the_fit_saw_them():
    pictures, labels = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))

    def brighter(images, rng):
        return images + 5.0 + 0.0 * torch.rand(1, generator=rng)

    options = {"augment": brighter, "recipe": livi.Recipe(steps=2, map_steps=2), "progress": False}
    posterior = livi.fit(net, (pictures, labels), livi.Categorical(), standardise=False, **options)
    assert posterior.calibration.min() >= 5.0
    shown = torch.stack([one.sum() for one in posterior.calibration]).sort().values
    assert torch.allclose(shown, torch.stack([one.sum() + 80.0 for one in pictures]).sort().values)


def test_augmentation_belongs_to_tensors_and_keeps_data_from_being_gathered():
    with pytest.raises(ValueError, match=r"augment: expected only with \(X, y\) data"):
        as_data([(torch.ones(2, 1), torch.ones(2))], augment=CropFlip(), **KIND)
    with pytest.raises(NotGatheredError, match="augmentation"):
        gathered(as_data((numbered_pictures(3), torch.arange(3)), augment=CropFlip(), **KIND))


# --- in a fit -------------------------------------------------------------------------------------


def picture_fit(**options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    data = (numbered_pictures(20) / 1000, torch.arange(20) % 2)
    return livi.fit(net, data, livi.Categorical(), recipe=SHORT, progress=False, **options)


def draws(posterior):
    return posterior.sample(3, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("batch_size", "stop_at"), [(None, 17), (7, 5)])
def test_a_resumed_fit_with_augmentation_continues_bit_for_bit(tmp_path, monkeypatch, batch_size, stop_at):
    options = {"augment": CropFlip(1), "batch_size": batch_size, "checkpoint_every": 4}
    whole = picture_fit(**options)
    taken = Trainer._step

    def interrupted(self, batch):
        if self.step == stop_at:
            raise StopHere
        return taken(self, batch)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(StopHere):
        picture_fit(checkpoint=tmp_path / "parts.livi", **options)
    monkeypatch.setattr(Trainer, "_step", taken)
    resumed = picture_fit(checkpoint=tmp_path / "parts.livi", **options)
    torch.testing.assert_close(draws(resumed), draws(whole), rtol=0, atol=0)
    assert not torch.equal(draws(whole), draws(picture_fit(batch_size=batch_size)))


def test_a_checkpoint_of_another_augmentation_is_an_error(tmp_path):
    picture_fit(augment=CropFlip(1), checkpoint=tmp_path / "c.livi")
    with pytest.raises(ValueError, match=r"augment was CropFlip\(padding=1, flip=True\) and is None"):
        picture_fit(checkpoint=tmp_path / "c.livi", steps=40)


def test_a_last_layer_is_not_integrated_out_of_augmented_data():
    net = nn.Sequential(nn.Flatten(), nn.Linear(50, 2), nn.Tanh(), nn.Linear(2, 1))
    data = (numbered_pictures(6), torch.zeros(6, 1))
    assert "augmentation" in str(livi.plan(net, data, livi.Gaussian(1.0), augment=CropFlip(1)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_augmentation_can_be_recorded_as_a_cuda_graph():
    pictures, rng = numbered_pictures(50).cuda(), torch.Generator("cuda").manual_seed(0)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(rng)
    CropFlip()(pictures, rng)
    with torch.cuda.graph(graph):
        augmented = CropFlip()(pictures, rng)
    graph.replay()
    first = augmented.clone()
    graph.replay()
    assert not torch.equal(first, augmented)
