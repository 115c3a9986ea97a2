"""NUTS with numpyro: Hamiltonian Monte Carlo, the reference posterior for small networks where its chains agree."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from livi import checks
from livi.family.ensemble import Ensemble
from livi.inference import Recipe
from livi.inference.refit_noise import Limits, fit_noise
from livi.model.data import NotGatheredError, gathered
from livi.model.likelihoods import Gaussian, Likelihood
from livi.model.problem import Problem
from livi.model.warning import warn
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.jax_network import in_double, load, log_likelihood, log_prior, translated
from livi.rivals.map_start import MapFits, as_posterior, checked
from livi.sampling.convergence import effective_size, split_rhat
from livi.sampling.polishing import followed_predictions

MOST_WEIGHTS = 2_000
TOLERANCE = 1e-6  # relative difference of the log joint densities of jax and torch
LARGE_RHAT = 1.1
NOISE_SPREAD = 1.0  # prior standard deviation of the logarithm of a learned noise, around the best MAP estimate's


@dataclass(frozen=True)
class NutsReport:
    """Convergence diagnostics of the chains; `print` it.

    R-hat and effective sample sizes are those of predictions at up to 32 training inputs, not of weights: networks that
    differ only in the order of their units are equal, and chains need not agree on the order.

    Attributes:
        draws: number of draws of all chains together.
        leapfrog_steps: average number per draw; each takes a gradient on all data.
        rhat: of the predictions, median and largest; 1 where all chains agree.
        effective: effective sample size of the predictions, median and smallest.
        rhat_log_joint, effective_log_joint: the same for the log joint density.
    """

    chains: int
    draws: int
    warmup: int
    divergences: int
    leapfrog_steps: float
    seconds: float
    rhat: tuple[float, float]
    effective: tuple[float, float]
    rhat_log_joint: float
    effective_log_joint: float

    @classmethod
    def of(cls, posterior: Posterior) -> NutsReport:
        """The report of a posterior from `fit_nuts`, also of a loaded one."""
        if "nuts" not in posterior.plan:
            raise ValueError("posterior: expected one that fit_nuts returned, got another.")
        facts = dict(posterior.plan["nuts"])
        return cls(**facts | {"rhat": tuple(facts["rhat"]), "effective": tuple(facts["effective"])})

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.draws:,} draws of {self.chains} NUTS chains, {self.warmup:,} steps of warm-up each, in "
                f"{self.seconds:.1f} s",
                f"  predictions   R-hat {self.rhat[0]:.2f} (worst {self.rhat[1]:.2f}), effective draws "
                f"{self.effective[0]:.0f} (least {self.effective[1]:.0f})",
                f"  log joint     R-hat {self.rhat_log_joint:.2f}, effective draws {self.effective_log_joint:.0f}",
                f"  trajectories  of {self.leapfrog_steps:.0f} steps on average, {self.divergences} divergences",
            ]
        )


@checked
def fit_nuts(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    chains: int = 4,
    warmup: int = 500,
    draws: int = 500,
    max_tree_depth: int = 10,
    most_weights: int = MOST_WEIGHTS,
    **options: Any,
) -> Posterior:
    """NUTS on all data, with `draws` draws from each of `chains` chains that start at different MAP estimates.

    The network is translated into jax (`livi.rivals.jax_network`), and its log joint density compared with torch's. A
    learned noise of a Gaussian is sampled too: its prior is log-normal around the noise of the best MAP estimate, with
    a standard deviation of 1 for the logarithm, and each chain starts at the noise of its own estimate. Predictions use
    one noise for all draws, the geometric mean. For convergence, `print(NutsReport.of(posterior))`.

    Args:
        draws: of each chain, after `warmup` steps that choose step size and mass matrix.
        max_tree_depth: a draw takes at most 2^max_tree_depth - 1 gradients.
        most_weights: networks with more weights are refused, because chains would take days.
        **options: as in `fit_ensemble`, for the MAP fits.

    Raises:
        ImportError: jax or numpyro is not installed.
        TypeError: a layer, the likelihood or the prior has no translation.
        ValueError: the network has too many weights, or the data are not the same in every epoch.
    """
    for name, value in (("chains", chains), ("warmup", warmup), ("draws", draws), ("max_tree_depth", max_tree_depth)):
        checks.positive_int(name, value)
    jax, numpyro = load("fit_nuts")
    asked: Recipe | None = options.get("recipe")
    steps = asked.map_steps if asked is not None and "map_steps" in asked.named else None
    _check_size(net, options, most_weights)
    fits = MapFits.of("fit_nuts", net, data, likelihood, chains, steps, options)
    problem, limits = fits.problem, fits.problem.likelihood.lower_limits()
    starts = fits.starts()
    noises = _noise_of_each(problem, starts.theta, limits)
    started = time.perf_counter()
    with in_double(jax):
        density = _density(jax, problem)
        _check_translation(jax, density, problem, starts.theta)
        noise = _learned_noise(problem.likelihood)
        begin = {"theta": jax.numpy.asarray(starts.theta.double().cpu().numpy())}
        if noises is not None:
            begin["log_std"] = jax.numpy.asarray(_double(noises))
        kernel = numpyro.infer.NUTS(potential_fn=lambda at: -density(at), max_tree_depth=max_tree_depth)
        run = numpyro.infer.MCMC(
            kernel,
            num_warmup=warmup,
            num_samples=draws,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        run.run(
            jax.random.PRNGKey(options.get("seed", 0)),
            init_params=begin if chains > 1 else {name: value[0] for name, value in begin.items()},
            extra_fields=("diverging", "num_steps", "potential_energy"),
        )
        found = run.get_samples(group_by_chain=True)
        extra = run.get_extra_fields(group_by_chain=True)
    theta = torch.tensor(_numpy(found["theta"])).to(starts.theta)  # (C, T, m)
    if noise is not None:
        level = torch.tensor(_numpy(found["log_std"])).flatten(0, 1).mean(0)
        with torch.no_grad():
            noise.copy_(level.to(noise))
    levels = -torch.tensor(_numpy(extra["potential_energy"]))
    leapfrog = _numpy(extra["num_steps"])
    report = _report(
        problem, theta, levels, leapfrog, _numpy(extra["diverging"]), warmup, time.perf_counter() - started
    )
    for text in _alarms(report):
        warn(text)
    members = Ensemble(problem.layout, theta.flatten(0, 1)).requires_grad_(False)
    trajectories = chains * (warmup + draws) * report.leapfrog_steps  # assumes trajectories as long in the warm-up
    total = round(trajectories * problem.data.steps_per_epoch)
    return as_posterior(problem, fits.recipe, members, "nuts", gradients=total, nuts=asdict(report))


def _check_size(net: nn.Module, options: dict[str, Any], most: int) -> None:
    layout = Layout(net, options.get("include", "*"), options.get("exclude", ()))
    if layout.num_params > most:
        raise ValueError(
            f"fit_nuts: expected at most {most:,} weights, got {layout.num_params:,}: a chain on all data would take "
            "days. Leave some out by exclude=, polish a fit (livi.polish), or raise most_weights."
        )
    if layout.forward is not None or options.get("forward") is not None:
        raise ValueError("fit_nuts: expected a network that is called as it is, got forward=; wrap it in a module.")


def _noise_of_each(problem: Problem, theta: Tensor, limits: Limits) -> Tensor | None:  # (C, m) -> (C, ...)
    """The logarithm of the best noise for each row of weights; the likelihood ends with that of the first row."""
    noise = _learned_noise(problem.likelihood)
    if noise is None:
        return None
    found = []
    for row in theta.flip(0):
        fit_noise(problem, row, limits)
        found.append(noise.detach().clone())
    return torch.stack(found[::-1])


def _density(jax: Any, problem: Problem) -> Callable[[dict[str, Any]], Any]:
    """The jax function that NUTS samples: log p(D, theta), and the prior of the log noise where that is learned.

    Its argument has the entries "theta" and, for a learned noise, "log_std".
    """
    layout, numpy = problem.layout, jax.numpy
    try:
        whole = gathered(problem.data)
    except NotGatheredError as reason:
        raise ValueError(f"fit_nuts: expected the same examples at every epoch, but {reason}; pass (X, y).") from reason
    if not isinstance(whole.inputs, Tensor):
        raise TypeError(f"fit_nuts: expected one input tensor, got a {type(whole.inputs).__name__} of several.")
    given = whole.inputs if layout.scaling is None else layout.scaling(whole.inputs)
    inputs, targets = (numpy.asarray(_double(part)) for part in (given, whole.targets))
    forward, fit = translated(layout.module), log_likelihood(problem.likelihood)
    prior = log_prior(problem.prior, layout.num_params)
    module = layout.module
    parameters: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    parameters |= dict(module.named_buffers(remove_duplicate=False))
    fixed = {name: numpy.asarray(_double(value)) for name, value in parameters.items()}
    noise = _learned_noise(problem.likelihood)
    centre = None if noise is None else numpy.asarray(_double(noise))

    def density(at: dict[str, Any]) -> Any:
        theta, log_std = at["theta"], at.get("log_std")
        own = {name: theta[slot.start : slot.stop].reshape(slot.shape) for slot in layout.slots for name in slot.names}
        total = fit(forward(fixed | own, inputs), targets, log_std).sum() + prior(theta)
        if log_std is not None:
            total = total - 0.5 * (((log_std - centre) / NOISE_SPREAD) ** 2).sum()
        return total

    return density


def _check_translation(jax: Any, density: Callable[[dict[str, Any]], Any], problem: Problem, theta: Tensor) -> None:
    """Compare the log joint densities of jax and torch at these weights.

    Raises:
        TypeError: they differ.
    """
    noise = _learned_noise(problem.likelihood)
    module, likelihood = problem.layout.module, problem.likelihood
    fit, penalty = problem.on_data(theta, most=problem.data.steps_per_epoch)
    single = theta.dtype == torch.float32
    for row, expected in zip(theta, fit + penalty, strict=True):
        at = {"theta": jax.numpy.asarray(_double(row))}
        if noise is not None:
            at["log_std"] = jax.numpy.asarray(_double(noise))
        gap = abs(float(density(at)) - float(expected)) / (1.0 + abs(float(expected)))
        if not gap < (1e-3 if single else TOLERANCE):
            raise TypeError(
                f"fit_nuts: expected {type(module).__name__} and {type(likelihood).__name__} to mean the same in jax, "
                f"got log joint densities {float(density(at)):.6g} and {float(expected):.6g} in torch; change layers."
            )


def _learned_noise(likelihood: Likelihood) -> nn.Parameter | None:
    """The parameter of a Gaussian whose noise is learned, the logarithm of the noise."""
    noise = getattr(likelihood, "log_std", None)
    return noise if isinstance(likelihood, Gaussian) and isinstance(noise, nn.Parameter) else None


@torch.no_grad()
def _report(
    problem: Problem, theta: Tensor, levels: Tensor, lengths: Any, diverging: Any, warmup: int, seconds: float
) -> NutsReport:
    followed = followed_predictions(problem, theta.transpose(0, 1))
    rhat, effective = split_rhat(followed), effective_size(followed)
    joint = levels.T[..., None]
    return NutsReport(
        chains=theta.shape[0],
        draws=theta.shape[0] * theta.shape[1],
        warmup=warmup,
        divergences=int(diverging.sum()),
        leapfrog_steps=float(lengths.mean()),
        seconds=seconds,
        rhat=(float(rhat.median()), float(rhat.max())),
        effective=(float(effective.median()), float(effective.min())),
        rhat_log_joint=float(split_rhat(joint)),
        effective_log_joint=float(effective_size(joint)),
    )


def _alarms(report: NutsReport) -> list[str]:
    found = []
    if report.rhat[1] > LARGE_RHAT:
        found.append(
            f"Chains disagree about predictions: R-hat is {report.rhat[0]:.2f} at half of the inputs and up to "
            f"{report.rhat[1]:.2f}, where 1 is agreement. They are no reference yet; raise warmup and draws."
        )
    if report.divergences > 0.01 * report.draws:
        found.append(
            f"{report.divergences} of {report.draws} draws diverged; raise warmup, or widen the noise or prior."
        )
    return found


def _double(tensor: Tensor) -> Any:
    """The values in numpy, floating-point numbers in double precision."""
    values = tensor.detach().cpu()
    return (values.double() if values.is_floating_point() else values).numpy()


def _numpy(values: Any) -> Any:
    """A writable copy, which torch needs."""
    return np.array(values)
