"""How many images to measure the BatchNorm statistics of drawn networks on.

    LIVI_DATA_DIR=... python -m benchmarks.choose_statistics --device cuda --out statistics.json

A network of `livi bench cifar10` and a posterior from it, fitted to nine tenths of the training images. The same
drawn networks then answer for the last tenth, with statistics of ever more training images, as they are and in other
versions (crops and flips, as the fit saw them). Test images have no part in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from livi.experiments.datasets.pictures import data_folder
from livi.experiments.images.methods import Fitted, Task, fit_method
from livi.experiments.images.problems import PROBLEMS, Sets, load
from livi.experiments.images.scores import Answers
from livi.model.data import CropFlip
from livi.posterior.posterior import Posterior

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", default="128,512,2048,8192", help="images (default 128,512,2048,8192)")
    parser.add_argument("--methods", default="livi", help="of `livi bench cifar10` (default livi)")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", type=int, help="of the network (default 60)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="small networks, few images; numbers mean nothing")
    parser.add_argument("--out", type=Path, default=Path("statistics.json"))
    asked = parser.parse_args()
    problem, folder = PROBLEMS["cifar10"], data_folder()
    sets = replace(load(problem, folder, part="validation", quick=asked.quick, device=asked.device), others={})
    rows: list[Row] = []
    for seed in map(int, asked.seeds.split(",")):
        task = Task(sets, seed, asked.out.with_suffix(""), quick=asked.quick, epochs=asked.epochs, samples=50)
        for method in asked.methods.split(","):
            fitted = fit_method(method, replace(task, samples=5) if asked.quick else task)
            assert isinstance(fitted, Fitted)
            for row in scored(fitted, sets, list(map(int, asked.numbers.split(",")))):
                rows.append({"method": method, "seed": seed, "seconds": fitted.seconds} | row)
                print(table(rows[-1:]), flush=True)
                asked.out.write_text(json.dumps(rows, indent=1) + "\n")


def scored(fitted: Fitted, sets: Sets, numbers: list[int]) -> Iterator[Row]:
    """Scores of the same networks under statistics of so many images, and of versions of these."""
    inputs, rng = sets.train.inputs, torch.Generator(sets.train.inputs.device).manual_seed(0)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0)).to(inputs.device)
    for number in numbers:
        some = inputs[order[:number]]
        for name, calibration in {"as they are": some, "other versions": CropFlip()(some, rng)}.items():
            found = Answers.of(replace_calibration(fitted, calibration), sets.scored.inputs)
            yield {"pictures": number, "versions": name} | found.scores(sets.scored.labels)


def replace_calibration(fitted: Fitted, inputs: Tensor) -> Fitted:
    """The same posteriors, which draw the same networks, with these inputs for their statistics."""
    posteriors = [
        Posterior(one.sampler, one.likelihood, one.prior, calibration=inputs, plan=one.plan)
        for one in fitted.posteriors
    ]
    return Fitted(posteriors, fitted.samples, fitted.seconds)


def table(rows: list[Row]) -> str:
    return "\n".join(
        f"{row['method']} seed {row['seed']}: {row['pictures']} images {row['versions']}: "
        f"accuracy {row['accuracy']:.2%}, NLL {row['nll']:.4f}, ECE {row['ece']:.2%}, Brier {row['brier']:.4f}"
        for row in rows
    )


if __name__ == "__main__":
    main()
