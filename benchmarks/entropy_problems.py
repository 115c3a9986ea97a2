"""The generators and the estimators that the entropy benchmark crosses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from livi import MLP, MMNN, Exact, Lanczos, PerLayer, SmallestSingularValue
from livi.family.entropy import EntropyEstimator
from livi.family.generators import Generator, presets

SIZES = ("small", "medium", "large")
NOISES = (0.01, 0.05)
SPREAD = 0.05

CONVERGED = "L'' converged"
ESTIMATORS: dict[str, EntropyEstimator] = {
    "Lanczos 1 probe, 1e-1": Lanczos(num_probes=1, tolerance=1e-1),
    "Lanczos 1 probe, 1e-2": Lanczos(num_probes=1, tolerance=1e-2),
    "Lanczos 4 probes, 1e-1": Lanczos(num_probes=4, tolerance=1e-1),
    "Lanczos 4 probes, 1e-2": Lanczos(num_probes=4, tolerance=1e-2),
    "Exact": Exact(),
    "L'' default": SmallestSingularValue(),
    CONVERGED: SmallestSingularValue(max_iterations=3000),
}


@dataclass(frozen=True)
class Problem:
    """A generator, and on which devices the dense computations of it are affordable."""

    name: str
    size: str
    build: Callable[[], Generator]
    exact: tuple[str, ...] = ("cpu", "cuda")  # Exact with gradients: O(m d) memory
    reference: tuple[str, ...] = ("cpu", "cuda")  # the log-determinant in chunks: d products
    gradient: tuple[str, ...] = ("cpu", "cuda")  # its gradient in chunks: d double backward passes


def _wide_resnet_28_10() -> PerLayer:
    """One MMNN with a 30x30 latent for each layer of WRN-28-10; thin layers share one with a neighbour."""
    sizes = [26_032, *[230_400] * 7, 512_000, *[921_600] * 7, 2_048_000, *[3_686_400] * 7, 24_362]
    return PerLayer([MMNN((30, 30), size, hidden=((round(0.15 * size**0.5),) * 2,)) for size in sizes])


PROBLEMS = (
    Problem("toy MLP", "small", presets.toy),
    Problem("UCI MLP", "small", lambda: MLP(100, 751, hidden=(100,))),
    Problem("MMNN 5k", "small", lambda: MMNN((22, 22), 5_000, hidden=((70, 70),))),
    Problem("MNIST LeNet", "medium", presets.mnist_lenet, exact=("cuda",)),
    Problem("MNIST MLP", "medium", presets.mnist_mlp, exact=("cuda",), gradient=("cuda",)),
    Problem("CIFAR10 WRN-16-4", "large", presets.cifar10_wrn_16_4, exact=(), reference=("cuda",), gradient=()),
    Problem("WRN-28-10", "large", _wide_resnet_28_10, exact=(), reference=("cuda",), gradient=()),
)


def prepare(problem: Problem, device: str, seed: int) -> tuple[Generator, Tensor]:
    """The generator in a narrow state around random weights, and one latent, (1, d); the same on every device."""
    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # modules draw their first weights from the global stream
        generator = problem.build()
    theta = 0.1 * torch.randn(generator.num_params, generator=rng)
    z = torch.randn(1, generator.latent_dim, generator=rng)
    generator = generator.to(device).init_around(theta.to(device), SPREAD, rng=rng)
    return generator, z.to(device)
