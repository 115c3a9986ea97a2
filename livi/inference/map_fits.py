"""Where a fit starts: maximum a posteriori weights, the best of a few short runs trained side by side."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livi.draws import global_stream, normal, uniform
from livi.inference.capture import Stepper
from livi.inference.optimiser import adam, for_optimiser, set_rate
from livi.inference.progress import FitProgress
from livi.inference.ranks import Alone
from livi.inference.recipe import Recipe, cosine
from livi.inference.refit_noise import fit_noise, learned_beside
from livi.model.data import Batch, Data, remaining_batches
from livi.model.problem import Problem
from livi.network import Layout
from livi.network.evaluation import synchronise
from livi.sampling.chains import log_density_range

TEMPERATURE = 3.0  # nats, by which odds of starts fall by a factor e


class Starts(NamedTuple):
    """MAP estimates, best first."""

    theta: Tensor  # (R, m)
    log_likelihood: Tensor  # (R,)
    log_joint: Tensor  # (R,)

    def pick(self, count: int, seed: int) -> Tensor:  # (count, m)
        """The best row, or for a mixture so many different ones, drawn with odds exp(log joint / 3).

        The best few of many rows are often one mode found again and again. A mode's height differs from its mass by a
        few nats, so rows within a few nats of the best get about the same chance. Rows further below the best than
        draws of a posterior differ are excluded; where too few are left, these are repeated.
        """
        joint = self.log_joint.double().cpu().nan_to_num(nan=-math.inf)
        sound = (joint >= joint[0] - log_density_range(self.theta.shape[1])).nonzero()[:, 0]
        if count == 1 or len(sound) == 0:
            return self.theta[:count]
        if count >= len(sound):
            return self.theta[sound.repeat(-(-count // len(sound)))[:count].to(self.theta.device)]
        rng = torch.Generator().manual_seed(seed)
        gumbel = -(-uniform((len(self.theta),), rng, torch.float64).log()).log()
        keys = (joint / TEMPERATURE + gumbel)[sound]  # whose largest are draws without replacement
        return self.theta[sound[keys.topk(count).indices.sort().values].to(self.theta.device)]


def map_weights(problem: Problem, recipe: Recipe, *, seed: int, capture: bool | None = None) -> Starts:
    """The MAP estimates of a whole `MapStart`, best first.

    Raises:
        KeyboardInterrupt: on Ctrl-C; unlike `MapStart.run`, this keeps no unfinished weights.
    """
    search = MapStart(problem, recipe, seed=seed, capture=capture)
    starts = search.run()
    if search.interrupted:
        raise KeyboardInterrupt
    return starts


def best_map_weights(problem: Problem, recipe: Recipe, *, seed: int, capture: bool | None = None) -> Starts:
    """The best of several MAP estimates, with the likelihood's parameters refitted for this one alone."""
    limits = problem.likelihood.lower_limits()
    starts = map_weights(problem, recipe, seed=seed, capture=capture)
    best = Starts(*(values[:1] for values in starts))
    if len(starts.theta) == 1 or not recipe.map_steps or not learned_beside(problem.likelihood):
        return best
    fit_noise(problem, best.theta[0], limits)
    log_likelihood, log_prior = problem.on_data(best.theta)
    return Starts(best.theta, log_likelihood, log_likelihood + log_prior)


class MapStart:
    """`map_restarts` MAP fits as rows of one tensor, trained side by side; `run` takes them to the end.

    Row 0 starts at the module's own weights, the others at fresh initialisations of it. Only the weights and the
    likelihood's parameters are fitted: a MAP estimate of the prior's scale would shrink it to nothing.

    Attributes:
        interrupted: whether Ctrl-C ended the run, which then returned the weights found so far.
    """

    def __init__(
        self,
        problem: Problem,
        recipe: Recipe,
        *,
        seed: int,
        capture: bool | None = None,
        progress: FitProgress | None = None,
        ranks: Alone | None = None,
    ) -> None:
        self.ranks = ranks or Alone()
        self.problem, self.recipe, self.seed = problem, recipe, seed
        self.progress = progress or FitProgress(recipe.map_steps, quiet=True)
        self.theta = initial_weights(problem.layout, recipe.map_restarts, seed).requires_grad_()
        self.data = self.ranks.part(problem.data, fewest=problem.fewest)
        self.ascent = _Ascent(problem, self.theta, recipe.map_rate, self.ranks, self.data)
        self.stepper = Stepper(self.ascent.advance, self.ascent.changed, capture=capture)
        self.step = 0
        self.interrupted = False

    def run(self, save: Callable[[], None] | None = None, save_every: int = 500) -> Starts:
        """The weights, best first; on Ctrl-C those found so far. `save` is called every `save_every` steps."""
        recipe, group = self.recipe, self.ascent.optimiser.param_groups[0]
        self.progress.begin(self.step, max(1, recipe.map_steps), "MAP start")
        try:
            for batch in remaining_batches(self.data, self.seed, self.step, recipe.map_steps):
                set_rate(group, recipe.map_rate * cosine(self.step / recipe.map_steps))
                fit, penalty = self.stepper(batch)
                self.step += 1
                if self.step % 50 == 0:
                    _replace_lost(self.theta, fit + penalty)
                if self.step % 100 == 0 or self.step == recipe.map_steps:
                    best = _finite(fit + penalty).argmax()
                    row = {"log_likelihood": float(fit[best]), "log_prior": float(penalty[best])}
                    self.progress.show(self.step, row | {"rate": float(group["lr"])})
                if save is not None and self.step % save_every == 0:
                    save()
        except KeyboardInterrupt:
            if self.ranks.count > 1:
                raise
            self.interrupted = True
            self.progress.say(f"interrupted at step {self.step} of the MAP start: keeping the weights found by now")
            if save is not None:
                save()
        return ranked(self.problem, self.theta, recipe)

    def state(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "theta": self.theta,
            "likelihood": self.problem.likelihood.state_dict(),
            "optimiser": self.ascent.optimiser.state_dict(),
            "step": self.step,
        }

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.theta.copy_(state["theta"])
        self.problem.likelihood.load_state_dict(state["likelihood"])
        self.ascent.optimiser.load_state_dict(for_optimiser(state["optimiser"], self.ascent.optimiser))
        self.step = state["step"]
        self.stepper.reset()


class _Ascent:
    """One step towards the MAP estimate, for all rows at once."""

    def __init__(self, problem: Problem, theta: Tensor, rate: float, ranks: Alone, data: Data) -> None:
        self.problem, self.theta, self.ranks, self.data = problem, theta, ranks, data
        self.parameters = [theta, *problem.likelihood.parameters()]
        self.optimiser = adam(self.parameters, lr=rate)
        self.limits = problem.likelihood.lower_limits()

    def advance(self, batch: Batch) -> tuple[Tensor, Tensor]:  # (R,), (R,)
        fit, penalty = self.ranks.on_batch(self.problem, self.theta, batch)
        self.optimiser.zero_grad()
        scale = -self.data.emphasis(batch) / self.problem.data.num_data
        (scale * (fit + penalty).sum()).backward()
        self.ranks.add_gradients(self.parameters)
        _forget_non_finite(self.optimiser)
        self.optimiser.step()
        with torch.no_grad():
            for parameter, least in self.limits:
                parameter.clamp_(min=least)
        fit, penalty = self.ranks.sums(fit.detach(), penalty.detach())
        return fit, penalty

    def changed(self) -> list[Tensor]:
        moments = [value for state in self.optimiser.state.values() for value in state.values()]
        return [*self.parameters, *moments]


def ranked(problem: Problem, theta: Tensor, recipe: Recipe) -> Starts:
    """Rows of weights by their joint density with all data, best first; in their own order if none was fitted."""
    log_likelihood, log_prior = problem.on_data(theta.detach())
    score = _finite(log_likelihood + log_prior)
    if not bool(torch.isfinite(score).any()):
        raise ValueError(
            "start: expected a finite log joint density after the MAP fit, got none; "
            "standardise inputs and targets, or lower Recipe.map_rate."
        )
    order = score.argsort(descending=True) if recipe.map_steps else torch.arange(len(score), device=score.device)
    return Starts(theta.detach()[order], log_likelihood[order], score[order])


def measure_start(problem: Problem, rows: int) -> float:
    """Seconds of one MAP step for so many rows. Nothing is changed."""
    theta = problem.layout.flatten().expand(rows, -1).clone().requires_grad_()
    parameters = [theta, *problem.likelihood.parameters()]
    batch, seconds = problem.data.first(), float("inf")
    for _ in range(3):
        synchronise(theta)
        started = time.perf_counter()
        fit, penalty = problem.on_batch(theta, batch)
        torch.autograd.grad((fit + penalty).sum(), parameters, allow_unused=True)
        synchronise(theta)
        seconds = min(seconds, time.perf_counter() - started)
    return seconds


def _forget_non_finite(optimiser: torch.optim.Optimizer) -> None:
    """Zero non-finite gradients, lest one diverged restart spoil the others through the parameters they share."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def _finite(scores: Tensor) -> Tensor:
    """The scores, with -inf in place of any that is not finite."""
    return scores.where(torch.isfinite(scores), -math.inf)


@torch.no_grad()
def _replace_lost(theta: Tensor, joint: Tensor) -> None:
    """Replace rows with a non-finite density by the best row."""
    score = _finite(joint)
    theta.copy_(torch.where(torch.isfinite(score)[:, None], theta, theta[score.argmax()]))


def initial_weights(layout: Layout, count: int, seed: int) -> Tensor:  # (count, m)
    """The module's weights, then fresh draws from its layers' own initialisers (or, without one, perturbed weights)."""
    rows = [layout.flatten()]
    # Another seed than the user's, whose manual_seed(seed) may have made the module. Torch's generators take 64 bits.
    with global_stream(1_000_003 * (seed + 1) % 2**64, layout.device):
        rows += [_reinitialised(layout) for _ in range(count - 1)]
    return torch.stack(rows).clone()


def _reinitialised(layout: Layout) -> Tensor:
    module = copy.deepcopy(layout.module)
    fresh: set[str] = set()
    for prefix, layer in module.named_modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
            fresh |= {f"{prefix}.{name}" if prefix else name for name, _ in layer.named_parameters(recurse=False)}
    tensors = dict(module.named_parameters())
    for slot in layout.slots:
        if slot.name not in fresh:
            kept = tensors[slot.name].detach()
            noise = normal(tuple(kept.shape), None, kept.dtype, kept.device)
            tensors[slot.name] = nn.Parameter(kept + 0.1 * kept.square().mean().sqrt().clamp_min(0.1) * noise)
    return layout.flatten(tensors)
