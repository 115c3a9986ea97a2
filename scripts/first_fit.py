"""The first steps with livi, on made-up data: fit, diagnose, save, load, predict.

    python scripts/first_fit.py

Needs torch, numpy and safetensors, and none of the extras: `make clean-install` runs it in an environment without them.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import livi


def network(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, outputs))


def fitted(targets: Tensor, likelihood: nn.Module, outputs: int, folder: Path) -> Any:
    """Fit, diagnose, save and load a posterior, and return its prediction."""
    x = torch.linspace(-3, 3, 40)[:, None]
    posterior = livi.fit(network(outputs), (x, targets), likelihood=likelihood, steps=100, progress=False)
    print(f"{posterior}: {posterior.diagnose(x, targets, num_samples=64).severity}")
    posterior.save(folder / "first.livi")
    loaded = livi.load(folder / "first.livi", network(outputs))
    assert torch.equal(*(one.sample(5, torch.Generator().manual_seed(0)) for one in (loaded, posterior)))
    return loaded.predict(x, num_samples=50)


def main() -> None:
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 40)
    with tempfile.TemporaryDirectory() as folder:
        curve = fitted(x.sin() + 0.1 * torch.randn(40), livi.Gaussian(), 1, Path(folder))
        classes = fitted((x > 0).long(), livi.Categorical(), 2, Path(folder))
    assert torch.isfinite(curve.quantile(0.9)).all()
    assert torch.isfinite(curve.total_std).all()
    assert math.isclose(float(classes.probabilities.sum()), 40.0, rel_tol=1e-4)
    print("fitted, diagnosed, saved, loaded and predicted")


if __name__ == "__main__":
    main()
