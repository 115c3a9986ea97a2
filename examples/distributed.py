"""The same script for one process and for many: a classifier of two moons, fitted by all processes together.

    python examples/distributed.py
    torchrun --nproc-per-node 2 examples/distributed.py
    torchrun --nproc-per-node 2 --max-restarts 3 examples/distributed.py --checkpoint moons.checkpoint

All three give the same posterior, up to rounding. With --device cuda every process takes a GPU of its own.
"""

import argparse
import math

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import livi


def moons(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points on two interleaved half circles with noise, and which of the two each is from."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    angles = math.pi * torch.rand(count, generator=rng)
    x = torch.where(labels == 0, angles.cos(), 1.0 - angles.cos())
    y = torch.where(labels == 0, angles.sin(), 0.5 - angles.sin())
    return torch.stack([x, y], 1) + 0.2 * torch.randn(count, 2, generator=rng), labels


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--checkpoint", help="save the fit to this file, and continue from it if it exists")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    loader = DataLoader(TensorDataset(*moons(600, seed=0)), batch_size=200, shuffle=True)
    posterior = livi.fit(
        net,
        loader,
        livi.Categorical(),
        recipe=livi.Recipe(num_samples=8),
        steps=chosen.steps,
        checkpoint=chosen.checkpoint,
        checkpoint_every=100,
        device=chosen.device,
    )

    inputs, labels = moons(1000, seed=1)
    prediction = posterior.predict(inputs.to(chosen.device))
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        labels = labels.to(chosen.device)
        print(f"log score {-livi.metrics.nll(prediction, labels):.6f}, bound {posterior.history[-1]['bound']:.6f}")


if __name__ == "__main__":
    main()
