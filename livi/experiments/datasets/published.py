"""The files that the authors of image sets publish: addresses, md5 sums, and what to extract from archives.

The md5 sum of CIFAR-10 is from its page, https://www.cs.toronto.edu/~kriz/cifar.html. Those of MNIST and of
Fashion-MNIST's test part are those of the files with which livi's own numbers were made, and of torchvision. Those of
Fashion-MNIST's training part, KMNIST, EMNIST and SVHN are from torchvision (https://github.com/pytorch/vision,
torchvision/datasets). On those of CIFAR-100 and Tiny ImageNet several public loaders agree. The sums detect damaged
files, not forged ones. Sizes are approximate.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One published file.

    Args:
        path: where it belongs under the data folder.
        urls: the same file at several addresses, tried in this order.
        taken: for an archive, patterns of the members to extract, and their folders: {"a/*.bin": "b"} writes a/x.bin
            to b/x.bin. None for a file that is used as it is.
    """

    path: str
    urls: tuple[str, ...]
    md5: str
    taken: dict[str, str] | None = None


@dataclass(frozen=True)
class Source:
    """The files of a set, their approximate size, and whom to cite."""

    files: tuple[File, ...]
    megabytes: int
    citation: str


def _like_mnist(folder: str, hosts: tuple[str, ...], sums: dict[str, str]) -> tuple[File, ...]:
    names = {
        "train-images": "train-images-idx3-ubyte.gz",
        "train-labels": "train-labels-idx1-ubyte.gz",
        "test-images": "t10k-images-idx3-ubyte.gz",
        "test-labels": "t10k-labels-idx1-ubyte.gz",
    }
    return tuple(
        File(f"{folder}/{names[key]}", tuple(f"{host}/{names[key]}" for host in hosts), md5)
        for key, md5 in sums.items()
    )


def _emnist(kind: str) -> tuple[File, ...]:
    """The one archive of EMNIST, from which one kind is extracted."""
    return (
        File(
            "emnist/gzip.zip",
            (
                "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
            ),
            "58c8d27c78d21e728a6bc7b3cc06412e",
            {f"gzip/emnist-{kind}-*.gz": f"emnist-{kind}"},
        ),
    )


SOURCES: dict[str, Source] = {
    "mnist": Source(
        _like_mnist(
            "mnist",
            ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
            {
                "train-images": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels": "d53e105ee54ea40749a09fcbcd1e9432",
                "test-images": "9fb629c4189551a2d022fa330f9573f3",
                "test-labels": "ec29112dd5afa0611ce80d1b7f02629c",
            },
        ),
        12,
        "LeCun, Bottou, Bengio and Haffner (1998)",
    ),
    "fashion-mnist": Source(
        _like_mnist(
            "fashion-mnist",
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
            {
                "train-images": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels": "25c81989df183df01b3e8a0aad5dffbe",
                "test-images": "bef4ecab320f06d8554ea6380940ec79",
                "test-labels": "bb300cfdad3c16e7a12a480ee83cd310",
            },
        ),
        31,
        "Xiao, Rasul and Vollgraf (2017), MIT licence",
    ),
    "kmnist": Source(
        _like_mnist(
            "kmnist",
            ("http://codh.rois.ac.jp/kmnist/dataset/kmnist",),
            {
                "train-images": "bdb82020997e1d708af4cf47b453dcf7",
                "train-labels": "e144d726b3acfaa3e44228e80efcd344",
                "test-images": "5c965bf0a639b31b8f53240b1b52f4d7",
                "test-labels": "7320c461ea6c1c855c0b718fb2a4b134",
            },
        ),
        21,
        "Clanuwat et al. (2018), CC BY-SA 4.0",
    ),
    "emnist-letters": Source(_emnist("letters"), 562, "Cohen, Afshar, Tapson and van Schaik (2017)"),
    "emnist-digits": Source(_emnist("digits"), 562, "Cohen, Afshar, Tapson and van Schaik (2017)"),
    "cifar10": Source(
        (
            File(
                "cifar-10-binary.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                "c32a1d4ab5d03f1284b67883e8d87530",
                {"cifar-10-batches-bin/*.bin": "cifar-10-batches-bin"},
            ),
        ),
        170,
        "Krizhevsky (2009)",
    ),
    "cifar100": Source(
        (
            File(
                "cifar-100-binary.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
                "03b5dce01913d631647c71ecec9e9cb8",
                {"cifar-100-binary/*.bin": "cifar-100-binary"},
            ),
        ),
        169,
        "Krizhevsky (2009)",
    ),
    "svhn": Source(
        (
            File(
                "svhn/train_32x32.mat",
                ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat",),
                "e26dedcc434d2e4c54c9b2d4a06d8373",
            ),
            File(
                "svhn/test_32x32.mat",
                ("http://ufldl.stanford.edu/housenumbers/test_32x32.mat",),
                "eb5a983be6a315427106f1b164d9cef3",
            ),
        ),
        246,
        "Netzer et al. (2011), not for commercial use",
    ),
    "tiny-imagenet": Source(
        (
            File(
                "tiny-imagenet-200.zip",
                ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                "90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
        248,
        "Le and Yang (2015), terms of ImageNet: research only",
    ),
}
