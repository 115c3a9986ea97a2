"""Pools of posteriors compared with the networks that they started from, on validation images.

    LIVI_DATA_DIR=... python -m benchmarks.choose_pools --device cuda --jobs 4 --members 4 --epochs 55 \
        --settings fit=5@noise=0.1,fit=5@noise=0.1@offset=1e-4 --out pools.json

WRN-16-4 is trained on nine tenths of CIFAR-10's training images, as often as there are members, and a posterior
fitted from each under every setting (livi/experiments/images/settings.py). For the last tenth answer the networks
themselves, the posteriors' centres, and their draws: member by member, which are means, and pooled, as a mixture.
`gap` is the mean confidence less the accuracy, and `sharpened` the NLL of the pool's probabilities to the best power,
chosen on the same images: what is lost by being too sure or too unsure. Test images have no part in it.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from livi.experiments.datasets.pictures import data_folder
from livi.experiments.images.methods import GPU_MEMORY, Fitted, Task, fit_method
from livi.experiments.images.problems import PROBLEMS, Sets, load
from livi.experiments.images.scores import Answers, averaged, ood_scores
from livi.experiments.rows import Row
from livi.experiments.spreading import run_all
from livi.posterior.prediction import ClassificationPrediction

Job = tuple[int, str]  # member, setting
NETWORK = ""  # the setting of the networks themselves
FEW = 1000  # synthetic OOD images of each kind
POWERS = [0.7 + 0.02 * step for step in range(31)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="fit=10@noise=0.1", help="of livi, with commas between")
    parser.add_argument("--epochs", type=int, default=50, help="of the networks (default 50)")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--draws", default="10,40", help="networks of each posterior that answer (default 10,40)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small networks, few images; numbers mean nothing")
    parser.add_argument("--out", type=Path, default=Path("pools.json"))
    given = parser.parse_args()
    draws = [int(number) for number in given.draws.split(",")]
    fit = partial(
        answers,
        seed=given.seed,
        epochs=given.epochs,
        draws=draws,
        device=given.device,
        quick=given.quick,
        folder=given.out.with_suffix(""),
    )
    labels = _sets(given.device, given.quick).scored.labels.cpu()
    members, rows = range(given.members), []
    for settings in ([NETWORK], given.settings.split(",")):  # networks first, for all fits start from them
        arrived: dict[str, list[Row]] = {setting: [] for setting in settings}
        for found in run_all(fit, [(member, setting) for setting in settings for member in members], given.jobs):
            own = arrived[found["setting"]]
            own.append(found)
            if len(own) == given.members:
                rows += scored(own, labels)
                print("\n".join(lines(rows)), flush=True)
                given.out.write_text(json.dumps(rows, indent=1) + "\n")


@lru_cache(maxsize=1)
def _sets(device: str, quick: bool) -> Sets:
    folder = data_folder()
    return load(PROBLEMS["cifar10"], folder, part="validation", quick=quick, device=device)


def answers(job: Job, *, seed: int, epochs: int, draws: Sequence[int], device: str, quick: bool, folder: Path) -> Row:
    """Of one member, what each kind of it says of the images: of the network, or of a posterior from it."""
    member, setting = job
    warnings.simplefilter("ignore")  # what a fit says of itself is not what is looked at here
    sets = _sets(device, quick)
    task = Task(sets, seed + member, folder, quick=quick, epochs=epochs, samples=max(draws))
    fitted = fit_method("map" if setting == NETWORK else f"livi@{setting}", task)
    inputs = {"scored": sets.scored.inputs} | {name: ood[:FEW] for name, ood in sets.others.items()}
    if not isinstance(fitted, Fitted):
        kinds = {"as trained": {name: _kept(Answers.of(fitted, each).logs) for name, each in inputs.items()}}
        return {"setting": setting, "seconds": fitted.seconds, "kinds": kinds}
    (posterior,) = fitted.posteriors
    limit = GPU_MEMORY if device != "cpu" else None
    kinds = {"centre": dict[str, np.ndarray]()} | {f"{number} draws": {} for number in draws}
    for name, each in inputs.items():
        centre = posterior.predict(each, deterministic=True, memory_limit=limit)
        assert isinstance(centre, ClassificationPrediction)
        kinds["centre"][name] = _kept(averaged(centre.logits))
        logits = fitted.predict(each).logits
        for number in draws:
            kinds[f"{number} draws"][name] = _kept(averaged(logits[:number]))
    return {"setting": setting, "seconds": fitted.seconds, "kinds": kinds}


def _kept(logs: Tensor) -> np.ndarray:
    """For the way from one process to another, on which tensors take up file handles."""
    return logs.float().cpu().numpy()


def scored(found: Sequence[Row], labels: Tensor) -> list[Row]:
    """A row for each kind: the centres, and so many draws."""
    name, seconds = found[0]["setting"] or "networks", mean(each["seconds"] for each in found)
    return [
        {"setting": name, "kind": kind, "seconds": seconds} | pooled(found, kind, labels) for kind in found[0]["kinds"]
    ]


def pooled(found: Sequence[Row], kind: str, labels: Tensor) -> Row:
    """Scores of all members together, and of one by itself."""
    parts = [{name: torch.from_numpy(logs) for name, logs in each["kinds"][kind].items()} for each in found]
    together = {name: Answers(averaged(torch.stack([part[name] for part in parts]))) for name in parts[0]}
    scored = together.pop("scored")
    told = [ood_scores(scored, ood) for ood in together.values()]
    alone = [Answers(part["scored"]).scores(labels) for part in parts]
    accuracy = scored.scores(labels)["accuracy"]
    row: dict[str, Any] = {"member": {name: mean(one[name] for one in alone) for name in alone[0]}}
    row |= scored.scores(labels) | {"gap": scored.confidence.mean().item() - accuracy}
    row |= {"sharpened": min(_sharpened(scored.logs, power, labels) for power in POWERS)}
    return row | {name: mean(one[name] for one in told) for name in ("confidence", "auroc")}


def _sharpened(logs: Tensor, power: float, labels: Tensor) -> float:
    return -Answers(torch.log_softmax(power * logs, 1)).log_prob(labels).mean().item()


def lines(rows: Sequence[Row]) -> list[str]:
    head = ["setting", "kind", "one: accuracy", "NLL", "pool: accuracy", "NLL", "ECE", "gap", "sharpened"]
    head += ["synthetic OOD: confidence", "AUROC", "s"]
    text = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        alone = row["member"]
        cells = [f"{alone['accuracy']:.2%}", f"{alone['nll']:.4f}", f"{row['accuracy']:.2%}", f"{row['nll']:.4f}"]
        cells += [f"{row['ece']:.2%}", f"{row['gap']:+.2%}", f"{row['sharpened']:.4f}"]
        cells += [f"{row['confidence']:.1%}", f"{row['auroc']:.2%}", f"{row['seconds']:.0f}"]
        text.append(f"| {row['setting']} | {row['kind']} | {' | '.join(cells)} |")
    return text


if __name__ == "__main__":
    main()
