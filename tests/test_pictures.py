"""Picture sets: readers of every published format, what is said about damaged files, and one npz for all of them."""

import gzip
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from support.picture_files import made, write_cifar, write_idx, write_mnist

from livi import cli
from livi.experiments.datasets import pictures
from livi.experiments.datasets.download import verify
from livi.experiments.datasets.formats import read_idx, read_npz, read_pictures, read_svhn
from livi.experiments.datasets.pictures import SETS, available, data_folder, pack, read
from livi.experiments.datasets.published import SOURCES


def test_mnist_and_its_kin_are_read_as_published(tmp_path):
    write_mnist(tmp_path)
    pixels, labels = made(300, (1, 28, 28), 10, 0)
    images, classes = read(tmp_path, "mnist", "train")
    assert torch.equal(images, torch.tensor(pixels))
    assert torch.equal(classes, torch.tensor(labels).long())
    assert read(tmp_path, "kmnist").images.shape == (60, 1, 28, 28)


def test_emnist_is_turned_upright_and_its_letters_count_from_zero(tmp_path):
    write_mnist(tmp_path)
    stored = read_idx(tmp_path / "emnist-letters/emnist-letters-test-images-idx3-ubyte.gz")
    images, labels = read(tmp_path, "emnist-letters")
    assert torch.equal(images[:, 0], torch.tensor(stored).transpose(1, 2))
    assert set(labels.tolist()) == {0}  # that were 1


def test_kmnist_is_also_read_from_npz(tmp_path):
    (tmp_path / "kmnist").mkdir()
    pixels, labels = made(20, (1, 28, 28), 10, 0)
    np.savez(tmp_path / "kmnist/kmnist-test-imgs.npz", pixels[:, 0])
    np.savez(tmp_path / "kmnist/kmnist-test-labels.npz", labels)
    images, classes = read(tmp_path, "kmnist")
    assert torch.equal(images, torch.tensor(pixels))
    assert classes.tolist() == labels.tolist()


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_cifar_is_read_in_order_with_the_fine_label(tmp_path, name, classes):
    write_cifar(tmp_path)
    for seed, (part, count) in enumerate((("train", 300), ("test", 100))):
        pixels, labels = made(count, (3, 32, 32), classes, seed)
        images, found = read(tmp_path, name, part)
        assert torch.equal(images, torch.tensor(pixels))
        assert found.tolist() == labels.tolist()


def test_svhn_has_the_digit_zero_back(tmp_path):
    (tmp_path / "svhn").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
    stored = {"X": pixels.transpose(2, 3, 1, 0), "y": np.array([[10], [1], [9]])}
    savemat(tmp_path / "svhn/test_32x32.mat", stored)
    images, labels = read(tmp_path, "svhn")
    assert torch.equal(images, torch.tensor(pixels))
    assert labels.tolist() == [0, 1, 9]


def test_pictures_come_from_folders_and_archives_by_name_in_colour_and_of_one_size(tmp_path):
    folder = tmp_path / "tiny-imagenet-200/test/images"
    folder.mkdir(parents=True)
    grey = np.full((64, 64), 77, np.uint8)
    colour = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(grey).save(folder / "b.png")
    Image.fromarray(colour).save(folder / "a.png")
    (folder / "notes.txt").write_text("no picture")
    images, labels = read(tmp_path, "tiny-imagenet")
    assert labels is None
    assert torch.equal(images[0], torch.tensor(colour).permute(2, 0, 1))
    assert images[1].unique().tolist() == [77]
    archive = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.iterdir():
            file.write(path, path.relative_to(tmp_path))
        file.write(folder / "a.png", "elsewhere/c.png")
    assert np.array_equal(read_pictures(archive, 32, "tiny-imagenet-200/"), images.numpy())


def test_a_packed_set_is_the_same_and_comes_first(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    before = read(tmp_path, "mnist")
    assert pack(tmp_path, "mnist") == tmp_path / "mnist/test.npz"
    monkeypatch.setattr(pictures, "read_idx", None)  # no longer needed
    after = read(tmp_path, "mnist")
    assert torch.equal(after.images, before.images)
    assert torch.equal(after.labels, before.labels)
    write_cifar(tmp_path)
    assert read(tmp_path, "svhn").labels is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "expected a gzip file"),
        (gzip.compress(b"nothing like it"), "expected an idx file of bytes, got one that begins with 6e 6f 74 68"),
        (gzip.compress(b""), "begins with nothing"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9, 1, 2])), "expected 9 numbers, got 2"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 1, 1]))[:-9], "expected a gzip file"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path, content, message):
    path = tmp_path / "x-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_damaged_packed_file_is_named(tmp_path):
    write_cifar(tmp_path)
    path = tmp_path / "svhn/test.npz"
    whole = path.read_bytes()
    np.save(tmp_path / "single.npy", np.zeros((2, 3, 4, 4), np.uint8))
    for content in (b"", b"nothing like it", whole[:-100], (tmp_path / "single.npy").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="get the file again") as caught:
            read(tmp_path, "svhn")
        assert str(path) in str(caught.value)
        assert verify(tmp_path, "svhn") == [str(caught.value)]


def test_a_folder_with_a_damaged_image_is_named(tmp_path):
    pytest.importorskip("PIL")
    folder = tmp_path / "tiny-imagenet-32"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="expected images, got cannot identify"):
        read(tmp_path, "tiny-imagenet")


def test_other_damaged_files_are_named_too(tmp_path):
    write_cifar(tmp_path)
    path = tmp_path / "cifar-10-batches-bin/test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"expected a multiple of 3,073 bytes, got 307,299"):
        read(tmp_path, "cifar10")
    path.write_bytes(b"")
    for reader in (read_npz, read_svhn):
        with pytest.raises(ValueError, match="get the file again"):
            reader(path)
    np.savez(tmp_path / "other.npz", np.array([0.5]))
    with pytest.raises(ValueError, match="whole numbers from 0 to 255, got float64"):
        read_npz(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="expected images"):
        read_pictures(tmp_path / "cifar-100-binary", 32)


def test_pictures_and_labels_must_be_as_many(tmp_path):
    write_mnist(tmp_path)
    write_idx(tmp_path / "mnist/t10k-labels-idx1-ubyte.gz", np.zeros(7))
    with pytest.raises(ValueError, match="as many labels"):
        read(tmp_path, "mnist")


def test_what_is_not_there_says_how_to_get_it(tmp_path):
    assert not available(tmp_path, "svhn")
    with pytest.raises(FileNotFoundError, match=r"livi data get svhn.*LIVI_DATA_DIR"):
        read(tmp_path, "svhn")
    with pytest.raises(ValueError, match=r"expected one of mnist, .*got 'imagenet'"):
        read(tmp_path, "imagenet")
    with pytest.raises(ValueError, match="expected test of tiny-imagenet, got 'train'"):
        read(tmp_path, "tiny-imagenet", "train")


def test_the_folder_is_the_variable_s_or_the_cache_s(tmp_path, monkeypatch):
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("LIVI_DATA_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache/livi"


def test_every_set_has_a_source_and_every_file_of_it_is_one_that_is_read():
    assert SOURCES.keys() == SETS.keys()
    for name, source in SOURCES.items():
        read_from = {path for ways in SETS[name].values() for way in ways for path in way.paths}
        for file in source.files:
            assert len(file.md5) == 32
            places = [file.path] if file.taken is None else file.taken.values()
            assert all(any(path.startswith(place) for path in read_from) for place in places)


def test_the_commands_list_verify_and_pack(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path))
    write_mnist(tmp_path)
    assert cli.main(["data", "list", "mnist", "svhn"]) == 0
    listed = capsys.readouterr().out
    assert "train and test" in listed
    assert "not here, 246 MB" in listed
    assert cli.main(["data", "pack", "kmnist"]) == 0
    assert (tmp_path / "kmnist/test.npz").is_file()
    assert cli.main(["data", "verify", "svhn"]) == 0
    assert cli.main(["data", "verify", "mnist"]) == 1  # made pictures are not the published ones
    assert "expected md5 9fb629c4189551a2d022fa330f9573f3 as published" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["data", "get", "imagenet"])
