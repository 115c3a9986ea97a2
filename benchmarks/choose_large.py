"""Learning rates of the default above a million weights: a trained network with BatchNorm, fitted from its own weights.

    LIVI_DATA_DIR=... python -m benchmarks.choose_large                   # affine rates 1e-3, 3e-4, 1e-4, one seed
    LIVI_DATA_DIR=... python -m benchmarks.choose_large --device cuda --seeds 0,1,2

Four strided convolutions with BatchNorm, 1.6 million weights, trained on 6,000 of CIFAR-10's training pictures until it
knows them by heart, as networks are that people hand over. Scored on 2,000 other training pictures; no table reports
either. Half an hour on one CPU core.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import livi
from livi.experiments.datasets.pictures import data_folder
from livi.experiments.images.problems import PROBLEMS, load
from livi.inference import Recipe
from livi.posterior.metrics import accuracy, ece, nll
from livi.posterior.prediction import ClassificationPrediction

TRAINED_ON, SCORED_ON = 6_000, 2_000
EPOCHS, BATCH, RATE = 20, 128, 0.1


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((3, 64, 128, 256, 512)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def trained(x: Tensor, y: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = network().to(x.device)
    optimiser = torch.optim.SGD(net.parameters(), RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = EPOCHS * math.ceil(len(x) / BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).to(x.device).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
            schedule.step()
    return net


def row(label: str, prediction: ClassificationPrediction, y: Tensor, seconds: float) -> str:
    scores = f"{accuracy(prediction, y):.1%} | {nll(prediction, y):.3f} | {ece(prediction, y):.1%}"
    return f"| {label} | {scores} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_large", description=__doc__.splitlines()[0])
    parser.add_argument("--affine", default="1e-3,3e-4,1e-4")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    folder = data_folder()
    sets = load(PROBLEMS["cifar10"], folder, part="validation", device=chosen.device)
    x, y = sets.train.inputs[:TRAINED_ON], sets.train.labels[:TRAINED_ON]
    new_x, new_y = sets.scored.inputs[:SCORED_ON], sets.scored.labels[:SCORED_ON]
    warnings.simplefilter("ignore")  # what a fit says of itself is not what is looked at here
    print("| | accuracy | NLL | ECE | s |\n|---|---|---|---|---|", flush=True)
    for seed in map(int, chosen.seeds.split(",")):
        started = time.perf_counter()
        net = trained(x, y, seed)
        with torch.no_grad():
            plain = ClassificationPrediction(net.eval()(new_x)[None], livi.Categorical())
        print(row(f"the network, seed {seed}", plain, new_y, time.perf_counter() - started), flush=True)
        for rate in map(float, chosen.affine.split(",")):
            started = time.perf_counter()
            try:
                posterior = livi.fit(
                    net.train(),
                    (x, y),
                    livi.Categorical(),
                    start="net",
                    batch_size=BATCH,
                    recipe=Recipe(affine_rate=rate),
                    seed=seed,
                    progress=False,
                )
            except livi.FitError as error:
                print(f"| affine {rate:g} | {error} | | | |", flush=True)
                continue
            seconds = time.perf_counter() - started
            print(row(f"affine {rate:g}", posterior.predict(new_x, num_samples=20), new_y, seconds), flush=True)


if __name__ == "__main__":
    main()
