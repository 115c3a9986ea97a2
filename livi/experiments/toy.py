"""The toy experiment of the paper's Figure 1: fit a method, and measure its distance from the NUTS posterior."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from livi.experiments.toy_data import OBS_STD, PRIOR_STD, SIZES, ToyData, reference, toy_data, wasserstein2
from livi.family.family import Family
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import ExactLastLayer
from livi.family.objective import Bound
from livi.inference import Recipe, fit
from livi.model.likelihoods import Gaussian
from livi.model.priors import Normal
from livi.posterior.diagnostics import Estimate
from livi.posterior.interruption import completed
from livi.posterior.posterior import Posterior
from livi.rivals import METHODS as RIVALS
from livi.rivals import MultiplicativeFlow, fit_ensemble
from livi.rivals.sampler import Sampler
from livi.sampling import PolishReport, polish

METHODS = (
    "livi",
    "livi-mixture-K",
    "livi-sampled",
    "livi-polished",
    "livi-annealed",
    "ensemble-K",
    *(name for name in RIVALS if name not in ("livi", "ensemble")),
)
NUM_DRAWS = 4000  # functions from which each W2 and each standard deviation is computed
DROPOUT = 0.1  # probability for hidden units, in the network of MC dropout

# Options of the Markov chains: starts were chosen by `benchmarks.bench_toy_starts`, the rest by trials with seeds 0 to
# 5 (docs/benchmarks/polish.md).
CHAINS: dict[str, dict[str, Any]] = {
    "livi-polished": {"chains": 128, "draws": 4096, "steps": 5000, "warm_up": 0.5, "energy_error": 1e-4},
    "livi-annealed": {"chains": 256, "draws": 4096, "steps": 500, "start": "prior", "energy_error": 1e-4},
}
QUICK_CHAINS = {"chains": 8, "draws": 64, "steps": 60}
SHORTEST = Recipe(steps=50, map_steps=50, map_restarts=1, num_samples=16)  # before chains that use no draws of the fit

Fit = Callable[..., Posterior]


def network(seed: int, dropout: float = 0.0) -> nn.Sequential:
    """1-7-10-1 with ELU, 105 weights, initialised by torch under this seed; hidden units have this dropout.

    >>> sum(p.numel() for p in network(0).parameters())
    105
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for before, after in pairwise(SIZES):
            layers += [nn.Linear(before, after), nn.ELU(), *([nn.Dropout(dropout)] if dropout else [])]
        return nn.Sequential(*layers[: -2 if dropout else -1])


def method_named(method: str) -> Fit:
    """The function that fits a method of METHODS, with a number in place of K.

    livi and livi-mixture-K integrate the last layer out, as fit does by default; livi-sampled and all others do not.
    livi-polished is livi followed by Markov chains from its draws. The chains of livi-annealed start from the prior;
    they use the model of a very short fit, and none of its draws.
    The prior is part of the problem, so Laplace does not tune it.

    Raises:
        ValueError: there is no such method.
    """
    if method == "livi-sampled":
        return partial(fit, last_layer="sampled")
    if method in CHAINS:
        return partial(_polished, method)
    if method in RIVALS and method in METHODS:
        found = RIVALS[method].fit
        return partial(found, tune_prior=False) if method.startswith("laplace") else found
    numbered = re.fullmatch(r"(livi-mixture|ensemble)-([1-9]\d*)", method)
    if numbered is None:
        raise ValueError(f"method: expected one of {', '.join(METHODS)} with a number for K, got {method!r}.")
    count = int(numbered[2])
    if numbered[1] == "ensemble":
        return lambda *args, **options: fit_ensemble(*args, members=count, **options)
    return lambda *args, **options: fit(*args, components=count, **options)


def _polished(method: str, *args: Any, seed: int, recipe: Recipe | None = None, **options: Any) -> Posterior:
    chains = CHAINS[method] if recipe is None else CHAINS[method] | QUICK_CHAINS
    chosen = SHORTEST if recipe is None and method == "livi-annealed" else recipe
    return polish(fit(*args, seed=seed, recipe=chosen, **options), seed=seed, progress=False, **chains)


@dataclass(frozen=True)
class Fitted:
    """A posterior, with wall-clock and CPU seconds of its fit, MAP start included."""

    posterior: Posterior
    seconds: float
    cpu_seconds: float


def run(
    name: str, method: str, seed: int, *, recipe: Recipe | None = None, num_draws: int = NUM_DRAWS, drawn: bool = False
) -> dict[str, Any]:
    """Fit one method to one data set, and compare it with NUTS. Every random draw follows from the seed.

    Args:
        drawn: also return the curve that a figure shows.
    """
    fitted = fit_toy(name, method, seed, recipe=recipe)
    row = measure(name, method, seed, fitted, num_draws=num_draws)
    return row | {"curve": curve(name, seed, fitted.posterior, num_draws) if drawn else None}


def fit_toy(name: str, method: str, seed: int, *, recipe: Recipe | None = None) -> Fitted:
    """Fit one method to one data set.

    Raises:
        KeyboardInterrupt: the fit was interrupted, so that its posterior is not a result.
    """
    fit_method = method_named(method)
    options: dict[str, Any] = {} if recipe is None else {"recipe": recipe}
    if recipe is not None and method in ("swag", "ivon", "langevin"):  # their own steps come after those of the recipe
        options["steps"] = max(recipe.steps, 150)
    started, cpu_started = time.perf_counter(), time.process_time()
    posterior = fit_method(
        network(seed, DROPOUT if method == "mc_dropout" else 0.0),
        as_tensors(toy_data(name)),
        Gaussian(OBS_STD),
        prior=Normal(PRIOR_STD),
        seed=seed,
        progress=False,
        **options,
    )
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Fitted(completed(posterior), seconds, cpu_seconds)


def measure(name: str, method: str, seed: int, fitted: Fitted, *, num_draws: int = NUM_DRAWS) -> dict[str, Any]:
    """The distance of a fitted posterior from NUTS, ready for JSON.

    Returns:
        elbo, elbo_standard_error: the bound L' in nats, from fresh samples, also for AVB, KIVI and SIVI. For a mixture
            it is the mean over components, which is below the mixture's own bound by at most log K. MNF has its own
            bound; None for methods without one.
        w2_to_nuts: mean over the grid of the W2 distance between marginals of f; `w2_nuts` is NUTS against itself.
        gap_std, gap_std_nuts: standard deviation of f, averaged over the gap between the clusters.
        seconds, cpu_seconds: of the fit alone, MAP start included; CPU seconds do not depend on other processes.
        chains: diagnostics of the Markov chains, see `PolishReport`; None without chains.
        recipe: the schedule of the fit.
    """
    data, truth, posterior = toy_data(name), reference(name), fitted.posterior
    inputs, targets = as_tensors(data)
    rng = torch.Generator().manual_seed(seed)
    functions = draw_functions(posterior, torch.as_tensor(data.grid, dtype=torch.float32), num_draws, rng)
    learned = isinstance(posterior.sampler, (ExactLastLayer, ImplicitPosterior, MultiplicativeFlow))
    bound = evidence_bound(posterior, inputs, targets, rng) if learned else None
    return {
        "data": name,
        "method": method,
        "seed": seed,
        "elbo": bound.value if bound else None,
        "elbo_standard_error": bound.standard_error if bound else None,
        "w2_to_nuts": wasserstein2(functions, truth.quantiles),
        "w2_nuts": truth.w2_runs,
        "gap_std": float(functions.std(0, correction=0)[torch.as_tensor(data.gap)].mean()),
        "gap_std_nuts": truth.gap_std,
        "seconds": fitted.seconds,
        "cpu_seconds": fitted.cpu_seconds,
        "chains": _chains(posterior),
        "recipe": posterior.plan["recipe"],
    }


def _chains(posterior: Posterior) -> dict[str, Any] | None:
    if "polish" not in posterior.plan:
        return None
    report = PolishReport.of(posterior)
    names = ("chains", "draws", "steps", "gradients", "seconds", "rhat", "effective", "energy_error", "log_evidence")
    return {name: getattr(report, name) for name in (*names, "temperatures", "ancestors")}


def curve(name: str, seed: int, posterior: Posterior, num_draws: int = NUM_DRAWS) -> dict[str, list[float]]:
    """Mean and standard deviation of f on the reference's finer grid."""
    x = torch.as_tensor(reference(name).plot_grid, dtype=torch.float32)
    functions = draw_functions(posterior, x, num_draws, torch.Generator().manual_seed(seed))
    parts = {"mean": functions.mean(0), "std": functions.std(0, correction=0)}
    return {part: [round(value, 4) for value in values.tolist()] for part, values in parts.items()}


def as_tensors(data: ToyData) -> tuple[Tensor, Tensor]:  # (70, 1), (70,)
    return torch.as_tensor(data.x[:, None], dtype=torch.float32), torch.as_tensor(data.y, dtype=torch.float32)


def draw_functions(posterior: Posterior, x: Tensor, num_draws: int, rng: torch.Generator) -> Tensor:
    """Draws of f at these inputs, (num_draws, len(x))."""
    values: Tensor = posterior.functions(num_draws, rng)(x[:, None])
    return values.squeeze(-1)


@torch.no_grad()
def evidence_bound(
    posterior: Posterior,
    inputs: Tensor,
    targets: Tensor,
    rng: torch.Generator,
    *,
    repeats: int = 40,
    samples: int = 200,
) -> Estimate:
    """L' in nats, averaged over `repeats` independent estimates of `samples` weight vectors per component each."""
    if isinstance(posterior.sampler, ExactLastLayer):
        posterior = posterior.earlier()
    prior = posterior.prior
    if not isinstance(posterior.sampler, (ImplicitPosterior, MultiplicativeFlow)) or prior is None:
        raise TypeError(f"posterior: expected an implicit one with a prior, got {type(posterior.sampler).__name__}.")
    sampler = _linearised(posterior.sampler)
    bound = Bound(
        sampler,
        posterior.likelihood,
        prior,
        num_data=len(targets),
        num_samples=samples * sampler.num_components,
        num_entropy_samples=min(samples, 10) * sampler.num_components,
    )
    values = torch.stack([bound(inputs, targets, rng).bound.double() for _ in range(repeats)])
    return Estimate(float(values.mean()), float(values.std() / repeats**0.5))


def _linearised(sampler: Family) -> Family:
    """The same density with the linearised entropy, where a rival learns its own, so that bounds can be compared."""
    if not isinstance(sampler, Sampler):
        return sampler
    return ImplicitPosterior(sampler.layout, sampler._generators(), sampler._noises())
