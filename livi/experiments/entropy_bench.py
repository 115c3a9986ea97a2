"""The paper's test of the entropy approximation: for the decoder of a VAE, at several times of its training.

The estimates are compared with the truth, -E log q(x) over draws x of the decoder. There log q is estimated by
importance sampling over the latents, around every mode that Gauss-Newton steps find from the latent behind x and from
the encoder's mean. The paper's truth, with the encoder itself as the proposal, is one of the methods.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import correlation, mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from livi import checks
from livi.experiments.datasets import pictures
from livi.experiments.rows import Row, Rows, first_line, succeeded
from livi.experiments.runs import Job, Say, all_jobs, check_names, check_seeds, empty_document, recorded_fit, run_jobs
from livi.experiments.scoreboard import Column, Kind, table
from livi.experiments.toy import as_tensors, network
from livi.experiments.toy_data import OBS_STD, PRIOR_STD, toy_data
from livi.experiments.vae import VAE, train
from livi.family.entropy import EntropyEstimator, Exact, Lanczos, SmallestSingularValue, importance_log_density
from livi.family.jacobian import dense_jacobian
from livi.inference import FitWarning, Recipe
from livi.model.likelihoods import Gaussian
from livi.model.priors import Normal
from livi.rivals import fit_nuts

FILE = "entropy.json"
KIND = Kind(
    "The entropy of a VAE's decoder along its training, against importance sampling",
    "data",
    "seed",
    {
        "": (
            Column("last", "error at the end, nats", "lower", 3),
            Column("largest_size", "largest error, nats", "lower", 3),
            Column("milliseconds", "ms a look", None, 1),
        )
    },
    {
        "": (
            Column("final", "at the end, with its sign", None, 2),
            Column("largest", "largest, with its sign", None, 2),
            Column("correlation", "correlation with truth", None, 4),
            Column("nats", "entropy at the end, nats", None, 1),
            Column("truth", "by importance sampling, nats", None, 1),
        )
    },
    listed="only",
)
TRUTH = "importance"
SEEDS = (500, 501, 502)
MAX_PICTURES = 10_000
POINTS = 16  # epochs at which entropies are estimated, about

METHODS: dict[str, EntropyEstimator | None] = {
    "exact-terms": Exact(exact_terms=True),
    "exact": Exact(),
    "lanczos": Lanczos(),
    "smallest": SmallestSingularValue(),
    "encoder": None,  # importance sampling again, with the encoder as the proposal
}


# --- data -----------------------------------------------------------------------------------------


def _digits() -> Tensor:
    from sklearn.datasets import load_digits

    return torch.tensor(load_digits().data / 16.0, dtype=torch.float32)  # (1797, 64)


def _mnist() -> Tensor:
    found = pictures.read(pictures.data_folder(), "mnist", "train").images[:MAX_PICTURES]
    return found.flatten(1) / 255.0  # (10000, 784)


def _weights() -> Tensor:
    """NUTS draws of the toy network's weights, as in the paper; standardised, so that one noise suits all of them.

    Trajectories are short: the draws need not come from chains that have mixed, as they are only data to the VAE.
    """
    options: dict[str, Any] = {"chains": 4, "warmup": 300, "draws": 500, "max_tree_depth": 7, "seed": 0}
    problem = network(0), as_tensors(toy_data("A")), Gaussian(OBS_STD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        posterior = fit_nuts(*problem, prior=Normal(PRIOR_STD), recipe=Recipe(map_steps=500), **options)
    theta = posterior.sample(2000, torch.Generator().manual_seed(0))
    return (theta - theta.mean(0)) / theta.std(0)  # (2000, 105)


class Source(NamedTuple):
    """The rows of a data set, whether they are available, and what to install or download otherwise."""

    rows: Callable[[], Tensor]
    available: Callable[[], bool]
    needs: str


DATA: dict[str, Source] = {
    "weights": Source(_weights, lambda: find_spec("numpyro") is not None, 'numpyro: pip install "livi[baselines]"'),
    "digits": Source(_digits, lambda: find_spec("sklearn") is not None, 'scikit-learn: pip install "livi[tables]"'),
    "mnist": Source(
        _mnist,
        lambda: pictures.available(pictures.data_folder(), "mnist", "train"),
        "MNIST: run `livi data get mnist`, or set LIVI_DATA_DIR",
    ),
}


def available() -> tuple[str, ...]:
    return tuple(name for name, source in DATA.items() if source.available())


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """The runs to do: a VAE on every data set under every seed, all estimators at the same draws, one thread each.

    Args:
        noise: standard deviation of the decoder's outputs; data lie between 0 and 1, or are standardised.
        draws: of the decoder, for each entropy.
        importance: number of latents drawn for each log q.
    """

    data: tuple[str, ...]
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = SEEDS
    epochs: int = 100
    latent_dim: int = 10
    hidden: int = 128
    noise: float = 0.05
    draws: int = 256
    importance: int = 256

    def __post_init__(self) -> None:
        check_names("data", self.data, tuple(DATA))
        check_names("methods", self.methods, tuple(METHODS))
        for name in ("epochs", "latent_dim", "hidden", "draws", "importance"):
            checks.positive_int(name, getattr(self, name))
        checks.positive_float("noise", self.noise)
        check_seeds(self.seeds)

    def jobs(self) -> list[Job]:
        return all_jobs(self.data, [""], self.seeds)


def bench(config: Config, out: Path, *, jobs: int = 1, say: Say = print) -> dict[str, Any]:
    """Run the trainings that are not yet in out/entropy.json, adding each one to it, and return its content."""
    for name in config.data:
        if not DATA[name].available():
            raise ModuleNotFoundError(f"{name}: expected {DATA[name].needs}; got none.")
    return run_jobs(
        out / FILE,
        empty_document("entropy", config),
        config.jobs(),
        partial(run, config=config),
        key=KIND.key,
        notes=notes(config),
        jobs=jobs,
        summary=summary,
        line=_line,
        say=say,
    )


def run(job: Job, config: Config) -> Row:
    """Train one VAE, and estimate its decoder's entropy along the way, ready for JSON."""
    name, _, seed = job
    row = recorded_fit({"data": name, "seed": seed}, ("size", "curve"), partial(_trained, name, seed, config))
    return row | {"seconds": row["whole_seconds"]}


def _trained(name: str, seed: int, config: Config) -> Row:
    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows = DATA[name].rows()
        vae = VAE(rows.shape[1], config.latent_dim, config.hidden, config.noise)
        wanted = set(measured(config.epochs))
        curve = [
            {"epoch": epoch, "elbo": _elbo(vae, rows, rng)} | estimates(vae, config, seed)
            for epoch in train(vae, rows, config.epochs, rng)
            if epoch in wanted
        ]
    return {"size": rows.shape[1], "curve": curve}


def measured(epochs: int) -> list[int]:
    """The epochs after which to estimate entropies: often at first.

    >>> measured(20)
    [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 16, 20]
    """
    growth = [round(math.exp(step * math.log(epochs + 1) / POINTS)) - 1 for step in range(POINTS + 1)]
    return sorted(set(growth))


@torch.no_grad()
def estimates(vae: VAE, config: Config, seed: int) -> dict[str, Any]:
    """The entropy of the decoder by importance sampling and by every method, from the same latents and draws."""
    rng = torch.Generator().manual_seed(seed + 1)
    z = torch.randn(config.draws, config.latent_dim, generator=rng)
    eps = torch.randn(config.draws, vae.decoder.num_params, generator=rng)
    x = vae.decoder(z) + vae.noise * eps
    by_latents, by_noise = controls(vae, z, eps)
    begun = time.perf_counter()
    importance = importance_log_density(
        vae.decoder,
        x,
        vae.noise,
        latent_dim=config.latent_dim,
        starts=torch.stack([z, vae.encoded(x)[0]]),
        num_importance=config.importance,
        rng=rng,
    )
    truth = -importance.log_prob - by_latents - by_noise
    found: dict[str, Any] = {
        TRUTH: _mean(truth)
        | {"seconds": time.perf_counter() - begun, "effective": float(importance.effective.mean()) / config.importance}
    }
    for method in config.methods:
        begun = time.perf_counter()
        estimator = METHODS[method]
        if estimator is None:
            log_q, effective = encoder_log_density(vae, x, config.importance, rng)
            nats, more = -log_q - by_latents - by_noise, {"effective": float(effective.mean()) / config.importance}
        else:
            estimate = estimator(vae.decoder, z, vae.noise, rng)
            nats = estimate.nats - (by_latents if method == "exact-terms" else 0.0)  # it varies with |z|^2 as well
            more = {"converged": float(estimate.report.converged.double().mean())}
        error = {f"error_{name}": value for name, value in _mean(nats - truth).items()}
        found[method] = _mean(nats) | error | {"seconds": time.perf_counter() - begun} | more
    return found


@torch.no_grad()
def controls(vae: VAE, z: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:  # (S, d), (S, m) -> (S,), (S,)
    """Control variates of -log q(g(z) + noise eps): two terms of mean zero, to be subtracted from it.

    For an affine g, with A = J / noise, -log q is a constant plus half of Q = u^T (I + A A^T)^-1 u, u = A z + eps.
    For every g the mean of Q given z is z^T (I - M^-1) z + m - d + tr M^-1, where M = I + A^T A; and |z|^2 has mean d.
    """
    a = dense_jacobian(vae.decoder, z).double() / vae.noise.double()
    z, u = z.double(), eps.double() + (a @ z.double()[..., None])[..., 0]
    identity = torch.eye(z.shape[1], dtype=a.dtype)
    inverse = torch.linalg.inv(identity + a.mT @ a)
    pulled = (a.mT @ u[..., None])[..., 0]
    quadratic = u.square().sum(1) - torch.einsum("si,sij,sj->s", pulled, inverse, pulled)
    trace = inverse.diagonal(dim1=1, dim2=2).sum(1) - z.shape[1]
    expected = z.square().sum(1) - torch.einsum("si,sij,sj->s", z, inverse, z) + eps.shape[1] + trace
    return 0.5 * (z.square().sum(1) - z.shape[1]), 0.5 * (quadratic - expected)


def encoder_log_density(
    vae: VAE, x: Tensor, num_importance: int, rng: torch.Generator
) -> tuple[Tensor, Tensor]:  # (S,), (S,)
    """log q(x) with the encoder as proposal, the paper's truth, and the effective numbers of importance samples."""
    mean, std = vae.encoded(x)
    log_weights = []
    for _ in range(num_importance):
        eps = torch.randn(mean.shape, generator=rng)
        z = mean + std * eps
        unit = ((x - vae.decoder(z)) / vae.noise).double()
        fit = -0.5 * unit.square().sum(1) - x.shape[1] * (vae.noise.double().log() + 0.5 * math.log(2.0 * math.pi))
        log_weights.append(fit - 0.5 * (z.square() - eps.square()).double().sum(1) + std.double().log().sum(1))
    weights = torch.stack(log_weights)
    effective = (2.0 * weights.logsumexp(0) - (2.0 * weights).logsumexp(0)).exp()
    return weights.logsumexp(0) - math.log(num_importance), effective


def _mean(values: Tensor) -> dict[str, float]:
    return {"nats": float(values.mean()), "standard_error": float(values.std()) / math.sqrt(len(values))}


@torch.no_grad()
def _elbo(vae: VAE, rows: Tensor, rng: torch.Generator) -> float:
    return float(vae.elbo(rows[:2000], rng).mean())


# --- summary and table ----------------------------------------------------------------------------


def by_estimator(row: Mapping[str, Any]) -> list[Row]:
    """A row for each method, from the curve of one training: its errors, and its milliseconds for an entropy.

    `last` and `largest_size` are sizes of errors: after the last epoch, and the largest of all. `final` and `largest`
    are the same with their signs.
    """
    shared = {name: row.get(name) for name in ("data", "seed", "error", "warnings")}
    curve = row.get("curve") or []
    if not curve:
        return [shared | {"method": "every"}]
    methods = [name for name, found in curve[-1].items() if isinstance(found, dict) and "error_nats" in found]
    return [shared | {"method": name} | _of_curve(curve, name) for name in methods]


def _of_curve(curve: Sequence[Mapping[str, Any]], method: str) -> Row:
    errors = [point[method]["error_nats"] for point in curve]
    ours, theirs = ([point[name]["nats"] for point in curve] for name in (method, TRUTH))
    largest = max(errors, key=abs)
    return {
        "last": abs(errors[-1]),
        "largest_size": abs(largest),
        "final": errors[-1],
        "largest": largest,
        "correlation": correlation(ours, theirs) if min(map(len, map(set, (ours, theirs)))) > 1 else None,
        "milliseconds": 1000.0 * sum(point[method]["seconds"] for point in curve) / len(curve),
        "nats": ours[-1],
        "truth": theirs[-1],
    }


def summary(rows: Rows) -> list[Row]:
    """For each data set and method the spread over seeds of every quantity."""
    return KIND.summary([one for row in rows for one in by_estimator(row)])


def notes(config: Config) -> list[str]:
    left_out = [name for name in DATA if name not in config.data]
    return [f"{config.epochs} epochs, noise {config.noise}.", *(f"Left out: {name}." for name in left_out)]


def text(document: Mapping[str, Any]) -> str:
    """The results as a Markdown table, and what the truth costs."""
    sound: Rows = succeeded(document["rows"])
    every = [one for row in document["rows"] for one in by_estimator(row)]
    costs = [1000.0 * point[TRUTH]["seconds"] for row in sound for point in row["curve"]]
    cost = f"Importance sampling, the truth, takes {mean(costs):.0f} ms for an entropy." if costs else ""
    return "\n\n".join(filter(None, [table(every, KIND, KIND.shown()), cost, KIND.legend()]))


def _line(row: Mapping[str, Any]) -> str:
    if row["error"] is not None:
        return f"{row['data']} seed {row['seed']}: {first_line(row['error'])}"
    last = row["curve"][-1]
    parts = [f"{name} {last[name]['error_nats']:+.2f}" for name in METHODS if name in last]
    where = f"{row['data']} seed {row['seed']}: entropy {last[TRUTH]['nats']:.1f} nats"
    return f"{where}, {', '.join(parts)}, {row['seconds']:.0f} s"
