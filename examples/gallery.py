"""`livi.fit` without options on several kinds of problems, with a picture of each.

    python examples/gallery.py [--only moons,heteroscedastic] [--out docs/gallery] [--device cpu]

`digits` and `digits-cnn` need MNIST and Fashion-MNIST: `livi data get mnist fashion-mnist`.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import livi
from livi.experiments.datasets import pictures
from livi.posterior.metrics import accuracy, auroc, ece, nll
from livi.report.style import new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 0


def moons(device: str) -> tuple[Figure, str]:
    """A classifier of two interleaved half circles: where is it unsure, and for which reason?"""
    rng = torch.Generator().manual_seed(SEED)
    angle, label = torch.rand(200, generator=rng) * math.pi, torch.arange(200) % 2
    upper, lower = torch.stack([angle.cos(), angle.sin()], 1), torch.stack([1 - angle.cos(), 0.5 - angle.sin()], 1)
    x = torch.where(label[:, None] == 0, upper, lower) + 0.15 * torch.randn(200, 2, generator=rng)
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    posterior = livi.fit(net, (x, label), likelihood=livi.Categorical())
    axis = torch.linspace(-4, 5, 120)
    grid = torch.cartesian_prod(axis, axis - 0.5)
    prediction = posterior.predict(grid, num_samples=300, rng=torch.Generator(device).manual_seed(SEED))
    panels = {
        "probability of class 1": (prediction.probabilities[:, 1], "RdBu_r", 1.0),
        "total entropy (nats)": (prediction.entropy, "Greys", math.log(2)),
        "mutual information: epistemic (nats)": (prediction.mutual_information, "Greys", math.log(2)),
    }
    figure = new_figure(9.6, 3.2)
    for i, (title, (values, colours, top)) in enumerate(panels.items()):
        ax = figure.add_subplot(1, 3, i + 1)
        image = values.cpu().reshape(120, 120).T
        shown = ax.imshow(
            image, origin="lower", extent=(-4, 5, -4.5, 4.5), cmap=colours, vmin=0, vmax=top, aspect="auto"
        )
        for kind, marker, colour in ((0, "o", "#2166ac"), (1, "s", "#b2182b")):
            points = x[label == kind]
            ax.scatter(points[:, 0], points[:, 1], s=7, marker=marker, color=colour, edgecolor="white", linewidth=0.3)
        ax.set_title(title)
        figure.colorbar(shown, ax=ax, fraction=0.046)
    corner = posterior.predict(torch.tensor([[-4.0, 4.0], [5.0, -4.5], [-4.0, -4.5], [5.0, 4.0]]), num_samples=300)
    return figure, f"mutual information at the four corners: {_joined(corner.mutual_information)} nats"


def heteroscedastic(device: str) -> tuple[Figure, str]:
    """Regression with noise that grows with x and a gap in the data: aleatoric and epistemic uncertainty apart."""
    rng = torch.Generator().manual_seed(SEED)
    x = torch.rand(300, 1, generator=rng) * 8 - 4
    x = x[x[:, 0].abs() > 1]
    noise = 0.05 + 0.3 * (x[:, 0] + 4) / 8
    y = torch.sin(x[:, 0]) + noise * torch.randn(len(x), generator=rng)
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    posterior = livi.fit(net, (x, y), likelihood=livi.HeteroscedasticGaussian())
    grid = torch.linspace(-6, 6, 241)[:, None]
    prediction = posterior.predict(grid, num_samples=500, rng=torch.Generator(device).manual_seed(SEED))
    figure = new_figure(9.6, 3.2)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    place, mean = grid[:, 0], prediction.mean.cpu()
    total, epistemic = prediction.total_std.cpu(), prediction.epistemic_std.cpu()
    left.fill_between(place, mean - 2 * total, mean + 2 * total, color="#9ecae1", alpha=0.6, label="total, 2 std", lw=0)
    left.fill_between(
        place, mean - 2 * epistemic, mean + 2 * epistemic, color="#3182bd", alpha=0.6, label="epistemic", lw=0
    )
    left.plot(place, mean, color="#08519c", label="mean")
    left.plot(place, place.sin(), "k--", lw=1, label="truth")
    left.plot(x[:, 0], y, "k.", ms=2)
    left.set_ylim(-3, 3)
    left.legend(ncols=2)
    right.plot(place, prediction.aleatoric_std.cpu(), color="#e6550d", label="aleatoric")
    right.plot(place, epistemic, color="#3182bd", label="epistemic")
    seen = torch.linspace(-4, 4, 50)
    right.plot(seen, 0.05 + 0.3 * (seen + 4) / 8, "k--", lw=1, label="true noise")
    right.set_title("standard deviations")
    right.legend()
    inside = (grid[:, 0].abs() > 1.2) & (grid[:, 0].abs() < 3.8)
    wrong = (prediction.aleatoric_std.cpu() / (0.05 + 0.3 * (place + 4) / 8)).log()[inside].abs().exp().median()
    gap = epistemic[place.abs() < 0.5].mean() / epistemic[inside].mean()
    return figure, f"noise within a factor of {wrong:.2f} (median); epistemic std {gap:.1f} times larger in the gap"


def digits(device: str) -> tuple[Figure, str]:
    """A 784-400-400-10 network on 10,000 digits."""
    net = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    return _digits(net.to(device), device)


def digits_cnn(device: str) -> tuple[Figure, str]:
    """A small convolutional network with BatchNorm on 10,000 digits."""
    first = [nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 5, 2, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10)]
    return _digits(nn.Sequential(*first, *second).to(device), device)


def _digits(net: nn.Module, device: str) -> tuple[Figure, str]:
    x, y = _images("mnist", "train", device)
    x_test, y_test = _images("mnist", "test", device)
    clothes, _ = _images("fashion-mnist", "test", device)
    posterior = livi.fit(net, (x, y), likelihood=livi.Categorical())
    rng = torch.Generator(device).manual_seed(SEED)
    prediction, other = (posterior.predict(inputs, num_samples=50, rng=rng) for inputs in (x_test, clothes))
    figure = new_figure(9.6, 3.4)
    grid = figure.add_gridspec(2, 7, width_ratios=(2.6, 2.6, 1, 1, 1, 1, 1))
    _reliability(figure.add_subplot(grid[:, 0]), prediction.confidence.cpu(), (prediction.label == y_test).cpu())
    _entropies(figure.add_subplot(grid[:, 1]), prediction.entropy.cpu(), other.entropy.cpu())
    unsure = prediction.mutual_information.argsort(descending=True)[:10].tolist()
    for place, index in enumerate(unsure):
        ax = figure.add_subplot(grid[place // 5, 2 + place % 5])
        ax.imshow(x_test[index].cpu().reshape(28, 28), cmap="Greys")
        told = f"{int(prediction.label[index])} ({prediction.confidence[index]:.0%})"
        ax.set_title(f"{told}\ntrue {int(y_test[index])}", fontsize=7)
        ax.set_axis_off()
    scores = {"accuracy": accuracy, "NLL": nll, "ECE": ece}
    facts = ", ".join(f"{name} {score(prediction, y_test):.4f}" for name, score in scores.items())
    return figure, f"{facts}, AUROC of the entropy against clothes {auroc(other.entropy, prediction.entropy):.3f}"


def _reliability(ax: Axes, confidence: Tensor, right: Tensor) -> None:
    """Plot accuracy against confidence in ten bins of equally many digits, with two standard errors."""
    ax.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    for rows in confidence.argsort().chunk(10):
        share = right[rows].double().mean()
        error = 2.0 * (share * (1 - share) / len(rows)).sqrt()
        ax.errorbar(confidence[rows].mean(), share, error, fmt="o", markersize=3.5, color="#2166ac", linewidth=1.0)
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0.4, 1.01), ylim=(0.4, 1.01), title="reliability")


def _entropies(ax: Axes, digits: Tensor, clothes: Tensor) -> None:
    edges = torch.linspace(0.0, math.log(10.0), 40).tolist()
    for name, values, colour in (("digits", digits, "#2166ac"), ("clothes, never seen", clothes, "#b2182b")):
        ax.hist(values.tolist(), edges, density=True, label=name, color=colour, alpha=0.6)
    ax.set(xlabel="entropy of the prediction (nats)", yscale="log", title="digits and Fashion-MNIST")
    ax.legend(frameon=False, fontsize=7)


def _images(name: str, part: str, device: str) -> tuple[Tensor, Tensor]:
    """The first 10,000 of a published set, as rows of 784 numbers in [0, 1]."""
    images, labels = (values[:10_000].to(device) for values in pictures.read(pictures.data_folder(), name, part))
    return images.flatten(1) / 255.0, labels


def _joined(values: Tensor) -> str:
    return ", ".join(f"{value:.2f}" for value in values.tolist())


PROBLEMS = {"moons": moons, "heteroscedastic": heteroscedastic, "digits": digits, "digits-cnn": digits_cnn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="moons,heteroscedastic", help=f"from {','.join(PROBLEMS)} (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/gallery"))
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.only.split(","):
        started = time.perf_counter()
        with style():
            figure, facts = PROBLEMS[name](chosen.device)
            save(figure, chosen.out / f"{name}.png")
        print(f"{name}: {facts} ({time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
