"""Variational Bayesian last layers (Harrison, Willes and Snoek 2024) in the benchmark on tables, by the package vbll.

Network, layer and optimiser are those of the package's tutorials, one for regression and one for classes. Their
training lasts about 4,000 steps on data of their own; here a tenth of the rows is held out, and the weights of the
epoch that predicts it best are kept.
"""

from __future__ import annotations

import copy
import importlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from livi.experiments.table_data import Run, Split
from livi.experiments.table_scores import Answer, classes, normal_band
from livi.tables.estimators.scaling import Scaling

HELD = 0.1  # share of the rows held out for early stopping
STEPS, PATIENCE = 4_000, 50  # largest number of steps, and of epochs without improvement
DRAWS = 1_000  # of the last layer, for class probabilities


class Settings(NamedTuple):
    """The settings of a tutorial."""

    width: int
    layers: int  # besides the first, which has no activation
    batch_size: int
    rate: float


SETTINGS = {"regression": Settings(64, 4, 32, 1e-3), "classification": Settings(128, 2, 512, 3e-3)}


def fit_vbll(split: Split, run: Run) -> Answer:
    """A network with a variational Bayesian last layer, with the settings of the tutorials."""
    inputs, targets = (Scaling.of(part, np.ones(len(part))) for part in (split.inputs, split.targets.astype(float)))
    rows, tested = (_tensor(inputs.standardise(part)) for part in (split.inputs, split.test_inputs))
    classification = split.task == "classification"
    labels = (
        torch.from_numpy(split.targets).long()
        if classification
        else _tensor(targets.standardise(split.targets))[:, None]
    )
    with torch.random.fork_rng(devices=[]):  # vbll draws from torch's global state
        torch.manual_seed(run.seed)
        net = _network(split)
        _train(net, rows, labels, SETTINGS[split.task], 20 if run.quick else STEPS)
        with torch.no_grad():
            if classification:
                last: Any = net[-1]
                shares = last.predictive(net[:-1](tested), DRAWS).double()
                return classes((shares / shares.sum(1, keepdim=True)).numpy())
            found = net(tested).predictive
            mean, variance = (part.double().flatten().numpy() for part in (found.mean, found.covariance))
    shift, scale = map(float, targets)
    return normal_band(shift + scale * mean, scale * np.sqrt(variance), split.test_targets)


def _network(split: Split) -> nn.Sequential:
    vbll = importlib.import_module("vbll")
    width, layers = SETTINGS[split.task][:2]
    weight = 1.0 / len(split.inputs)  # of the KL divergence, as the loss is a mean over rows
    if split.task == "regression":
        last = vbll.Regression(width, 1, weight, parameterization="dense", prior_scale=1.0, wishart_scale=0.1)
    else:
        last = vbll.DiscClassification(width, split.num_classes, weight, parameterization="diagonal", prior_scale=1.0)
    hidden = (part for _ in range(layers) for part in (nn.Linear(width, width), nn.ELU()))
    return nn.Sequential(nn.Linear(split.inputs.shape[1], width), *hidden, last)


def _train(net: nn.Sequential, rows: Tensor, labels: Tensor, settings: Settings, steps: int) -> None:
    """AdamW with clipped gradients, without decay of the last layer; keeps the weights best for the held-out rows."""
    order = torch.randperm(len(rows))
    num_held = max(1, round(HELD * len(rows)))
    held, kept = order[:num_held], order[num_held:]
    groups: list[dict[str, Any]] = [
        {"params": net[:-1].parameters(), "weight_decay": 1e-4},
        {"params": net[-1].parameters(), "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=settings.rate)
    best, best_weights, since, taken = float("inf"), copy.deepcopy(net.state_dict()), 0, 0
    while taken < steps and since < PATIENCE:
        for batch in kept[torch.randperm(len(kept))].split(settings.batch_size):
            optimiser.zero_grad()
            net(rows[batch]).train_loss_fn(labels[batch]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            taken += 1
        with torch.no_grad():
            loss = float(net(rows[held]).val_loss_fn(labels[held]))
        since += 1
        if loss < best:
            best, best_weights, since = loss, copy.deepcopy(net.state_dict()), 0
    net.load_state_dict(best_weights)


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))
