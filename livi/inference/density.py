"""`livi.fit_density`: implicit variational inference for any density that can be evaluated up to a constant."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import global_stream
from livi.family.entropy import EntropyEstimator, Exact, Oriented
from livi.family.family import Family
from livi.family.generators import MLP, Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.latents import Antithetic
from livi.family.noise import FixedNoise, Noise
from livi.family.objective import Bound
from livi.inference.annealing import Annealed, Cooling
from livi.inference.callbacks import Callbacks
from livi.inference.divergence import REMEDY, FitError
from livi.inference.loop import Trainer
from livi.inference.plans import generators_and_noises
from livi.inference.progress import FitProgress
from livi.inference.recipe import Recipe
from livi.model.density import LogProb, density_problem
from livi.model.problem import Choice, Problem, chosen_for
from livi.model.warning import warn
from livi.network import Layout
from livi.network.modes import with_gradients
from livi.posterior.density import Density
from livi.posterior.diagnostics.estimate import NUM_BATCHES, from_batches

WIDTH = 64  # hidden units in each of two layers, and at least as many as dimensions
NOISE = 0.01  # times the spread
DRAWS = 4096  # with which the bound of a fitted density is estimated
BOUNDED = (
    "A density has to be positive wherever a draw may fall: fit the logarithm of what is positive, the logit of what "
    "lies in (0, 1), and add the log derivative."
)
LONG = 20  # fewest rows of history for which a bound is checked for running away
MUCH = 10.0  # nats, plus one for each dimension, by which a bound may still rise at the end


@with_gradients
def fit_density(
    log_prob: LogProb,
    dim: int,
    *,
    start: Tensor | None = None,
    spread: float = 1.0,
    family: Choice[Family] = None,
    generator: Choice[Generator] = None,
    noise: Choice[Noise] = None,
    components: int = 1,
    annealing: float = 0.5,
    recipe: Recipe | None = None,
    steps: int | None = None,
    seed: int = 0,
    progress: bool = True,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Density:
    """An implicit approximation q of the density proportional to exp(log_prob), and a bound on its log normaliser.

    Begins as a Gaussian around `start` that should be about as wide as the target, or wider: what it does not reach it
    seldom finds. The generator has as many latents as there are dimensions. Where it is injective, L' is then the ELBO
    itself, up to the noise; with more latents than dimensions L' can exceed log Z by nats.

    Args:
        log_prob: (S, dim) -> (S,), differentiable; a constant may be missing. Close over data, if there are any.
        start, spread: mean, by default 0, and standard deviation to begin with.
        family: another than an implicit one; an object or a function of the layout, such as a rival's.
        generator, noise: likewise; by default an MLP of two hidden layers of 64 tanh units (or `dim`, if more) beside a
            full affine map, and a fixed noise of 1 % of the spread.
        components: K of an equal mixture, each with a generator of its own, that all begin at slightly different
            places. For one generator well separated modes are harder.
        annealing: share of the steps in which the target is cooled, from the power 0.1 to itself, so that modes far
            apart are all found; 0 is cold from the start.
        recipe, steps: the schedule, as far as it is named; see `livi.Recipe`. There is no MAP fit and no KL warm-up.
        seed: decides every random draw.

    Raises:
        ValueError: log_prob is not finite at one of the first draws, has another shape or no gradient.
        FitError: smaller steps did not keep the fit from diverging.

    >>> import livi
    >>> q = livi.fit_density(lambda x: -0.5 * (x - 1.0).square().sum(1), 2, steps=200, progress=False)
    >>> q.sample(5).shape
    torch.Size([5, 2])
    """
    seed = checks.seed(seed)
    if not 0.0 <= annealing <= 1.0:
        raise ValueError(f"annealing: expected a share between 0 and 1, got {annealing}.")
    if family is not None and (generator is not None or noise is not None or components > 1):
        raise TypeError("family: expected no generator, noise or components beside it, for it has its own.")
    if recipe is not None and recipe.temperature != 1.0:
        raise ValueError(
            f"recipe: expected temperature 1, for a density has no likelihood to temper, got {recipe.temperature:g}; "
            "divide log_prob by it instead."
        )
    problem = density_problem(log_prob, dim, device=device, dtype=dtype)
    layout = problem.layout
    with layout.device:
        target = Annealed(log_prob).to(layout.device, layout.dtype)
    problem = replace(problem, prior=target)
    checks.positive_float("spread", spread)
    middle = layout.flatten() if start is None else torch.as_tensor(start, dtype=layout.dtype, device=layout.device)
    checks.vector("start", middle, dim)
    schedule = (recipe or Recipe()).over(default_recipe(dim))
    schedule = schedule if steps is None else schedule.lasting(steps)
    with global_stream(seed, layout.device):
        made = chosen_for(copy.deepcopy(family), layout) or _implicit(layout, generator, noise, components, spread)
        rows = middle.expand(made.num_components, -1)
        if made.num_components > 1:
            rows = rows + spread * torch.randn(rows.shape, dtype=layout.dtype, device="cpu").to(layout.device)
    made.begin_around(rows, spread)
    bound = _bound(problem, made, schedule)
    _try(problem, made, seed)
    show = FitProgress(schedule.steps, quiet=not progress)
    try:
        called = Callbacks([show, Cooling(target, annealing)])
        trainer = Trainer(bound, problem.data, schedule, seed=seed, progress=show, callbacks=called)
        trainer.run()
    except FitError as error:
        raise FitError(_trouble(str(error))) from None
    finally:
        show.close()
    bound.requires_grad_(False)
    facts = {
        "dim": dim,
        "spread": spread,
        "annealing": annealing,
        "seed": seed,
        "recipe": asdict(schedule),
        "interrupted_at": trainer.step if trainer.interrupted else None,
    }
    if not trainer.interrupted and _runs_away(trainer.history):
        warn(
            "fit_density: the bound is still rising, as it does without end where a density cannot be normalised. "
            "Check the sign of log_prob, which is neither a loss nor an energy; else take more steps.",
        )
    elif not trainer.interrupted and (rise := _rise(trainer.history)) > MUCH + dim:
        warn(
            f"fit_density: the bound rose by {rise:,.0f} nats in the last steps: q has not reached the target. Pass "
            "start= and spread= of where the density is large, or take more steps."
        )
    reached = _reached(bound, problem, trainer.rng)
    return Density(made, log_prob, bound=reached, history=trainer.history, plan=facts | made.facts())


def _runs_away(history: Sequence[Mapping[str, float]]) -> bool:
    """Whether a bound above zero has risen by a fifth of itself, and ten nats, over the last third of a fit."""
    if len(history) < LONG:
        return False
    third = len(history) // 3
    before, last = (
        sum(row["bound"] for row in rows) / len(rows) for rows in (history[-2 * third : -third], history[-third:])
    )
    return last > 0.0 and last - before > max(10.0, 0.2 * last)


def _rise(history: Sequence[Mapping[str, float]]) -> float:
    """By how many nats a bound rose from the first to the second half of the last third of a fit."""
    last = [row["bound"] for row in history[-(len(history) // 3) :]] if len(history) >= LONG else []
    half = len(last) // 2
    return sum(last[half:]) / len(last[half:]) - sum(last[:half]) / half if half else 0.0


def default_recipe(dim: int) -> Recipe:
    """Many draws a step, since a density in few dimensions is cheap, all of them for the entropy; fewer of the latter
    where its matrices are larger."""
    many = dim <= 16
    return Recipe(
        steps=3000,
        map_steps=0,
        map_restarts=1,
        affine_rate=1e-2,
        nonlinear_rate=5e-3,
        hyper_rate=1e-2,
        kl_warm_up=0.0,
        num_samples=128 if many else 64,
        num_entropy_samples=128 if many else 16,
    )


def default_generator(layout: Layout) -> Generator:
    """An MLP with as many latents as dimensions, so that L' is the ELBO of any injective map that it learns."""
    dim = layout.num_params
    width = max(WIDTH, dim)
    with torch.device("cpu"):  # a seed means the same first weights on every device
        made = MLP(dim, dim, hidden=(width, width), activation=nn.Tanh, skip=True, offset=True)
    return made.to(layout.device, layout.dtype)


def _implicit(
    layout: Layout, generator: Choice[Generator], noise: Choice[Noise], components: int, spread: float
) -> ImplicitPosterior:
    count = checks.positive_int("components", components)

    def small(layout: Layout) -> Noise:
        with layout.device:
            return FixedNoise(NOISE * spread)

    generators, noises = (copy.deepcopy(generator), default_generator), (copy.deepcopy(noise), small)
    return ImplicitPosterior(layout, *generators_and_noises(layout, count, generators, noises))


def _bound(problem: Problem, family: Family, recipe: Recipe) -> Bound:
    return Bound(
        family,
        problem.likelihood,
        problem.prior,
        num_data=1,
        entropy=_entropy(family),
        num_samples=recipe.num_samples * family.num_components,
        num_entropy_samples=recipe.num_entropy_samples * family.num_components,
        latents=Antithetic(),  # many draws of few latents are many frames of orthogonal ones
        strategy=problem.strategy,
    )


def _entropy(family: Family) -> EntropyEstimator:
    """One that keeps a generator from folding, where it has as many latents as dimensions."""
    generators = list(family.generators) if isinstance(family, ImplicitPosterior) else []
    square = [isinstance(each, Generator) and each.latent_dim == family.num_params for each in generators]
    return Oriented() if all(square) else Exact()


def _try(problem: Problem, family: Family, seed: int) -> None:
    """The density at a few draws, so that a wrong function fails now: one value that is not finite spoils a step."""
    rng = torch.Generator(problem.layout.device).manual_seed(seed)
    values = problem.prior.log_prob(family.sample(64, rng).detach().requires_grad_())
    broken = int((~torch.isfinite(values)).sum())
    if broken:
        raise ValueError(
            f"log_prob: expected finite values where the fit begins, got NaN or inf at {broken} of 64 draws; pass "
            f"start= and spread= of a place where the density is positive. {BOUNDED}"
        )
    if not values.requires_grad:
        raise ValueError(
            "log_prob: expected a function that torch can differentiate, got values without a gradient; compute it "
            "from x by torch's functions, without numpy, .detach() or no_grad."
        )


def _trouble(said: str) -> str:
    """What a fit that could not go on says, in terms of a density: it has neither a prior nor data."""
    happened = said.removesuffix(f" {REMEDY}.").replace("log_prior", "log_prob")
    if "log_prob" in happened:
        return f"fit_density: {happened} {BOUNDED} Else start= and spread= are of a place where it overflows."
    return (
        f"fit_density: {happened} Check that the gradient of log_prob is finite, pass start= and spread= of where the "
        "density is large, or lower the recipe's rates."
    )


@torch.no_grad()
def _reached(bound: Bound, problem: Problem, rng: torch.Generator) -> Any:
    """The bound from fresh draws, with its standard error."""
    batch = problem.data.first()
    rounds = max(NUM_BATCHES, DRAWS // bound.num_samples)
    return from_batches([bound(*batch, rng).bound for _ in range(rounds)])
