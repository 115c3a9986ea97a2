"""Titles of methods and image sets in tables and figures."""

from __future__ import annotations

import re

from livi.experiments.uci.text import TITLES as UCI_TITLES
from livi.rivals import METHODS

TITLES = {name: method.title for name, method in METHODS.items()} | UCI_TITLES
TITLES |= {"livi": "LIVI", "livi-smallest": "LIVI, L''", "livi-annealed": "MCMC from the prior", "bde": "bde"}
TITLES |= {"plain": "One network", "livi-net": "LIVI from the network"}
SETS = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "kmnist": "KMNIST",
    "emnist-letters": "EMNIST letters",
    "emnist-digits": "EMNIST digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "tiny-imagenet": "Tiny ImageNet",
}
NUMBERED = {
    "ensemble": "Ensemble of {}",
    "livi-mixture": "LIVI, {} components",
    "livi-pooled": "LIVI, pool of {}",
}


def titled(method: str) -> str:
    """The title of a method with its number and settings; its own name where it has none.

    >>> titled("swag"), titled("ensemble-5"), titled("livi-mixture-1@prior=0.5")
    ('SWAG', 'Ensemble of 5', 'LIVI, one component, prior 0.5')
    """
    name, *settings = method.split("@")
    numbered = re.fullmatch(r"(.+)-(\d+)", name)
    if numbered is not None and numbered[1] in NUMBERED:
        title = NUMBERED[numbered[1]].format(numbered[2]).replace(", 1 components", ", one component")
    else:
        title = TITLES.get(name, name)
    return ", ".join([title, *(setting.replace("=", " ") for setting in settings)])
