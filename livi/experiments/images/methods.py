"""The methods of the image benchmarks: `fit_method` fits the method of this name to a `Task`.

A name is one of `livi.rivals.METHODS`, or

    ensemble-K        K networks from different seeds
    livi-smallest     livi with the paper's L'': the entropy by the smallest singular value, converged
    livi-mixture-K    a mixture of K generators, trained jointly
    livi-pooled-K     K fits from different starts, with equal weights

followed by settings that replace those of the method, as in `livi@prior=0.5` (livi/experiments/images/settings.py).

If a problem has `epochs`, all methods start from networks trained by SGD, member k of every method from the same one.
Otherwise they start from scratch.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from livi.experiments.deadlines import Deadline, OutOfTime, StopAt
from livi.experiments.images.problems import ImageProblem, Sets, build
from livi.experiments.images.settings import Settings, check_settings, split_name
from livi.experiments.images.training import Trained, Training, train
from livi.family.entropy import SmallestSingularValue
from livi.inference import Recipe
from livi.inference.options import joined_options
from livi.inference.plans import Choices
from livi.inference.rules import Size, default_recipe
from livi.model.data import CropFlip
from livi.model.likelihoods import Categorical
from livi.model.problem import Problem
from livi.posterior.interruption import completed, interrupted
from livi.posterior.pooling import pool
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import ClassificationPrediction
from livi.posterior.storage import replace_file
from livi.rivals import METHODS, fit_ensemble
from livi.rivals.methods import Budget, steps_on_the_bound

QUICK_STEPS, QUICK_BATCH, QUICK_GRADIENTS, QUICK_EPOCHS, QUICK_RATE = 12, 32, 300, 1, 3e-3
LISTED_APART = ("livi", "map", "ensemble")  # by default_methods
# Too many weights; no dropout layer; all images in every step.
NOT_POSSIBLE = ("full_rank", "mc_dropout", "langevin", "nuts")
AT_SCALE = ("mean_field", "swag", "ivon", "laplace_last_layer")
SEEDS_APART = 1000  # between the seeds of two runs; members have those in between
GPU_MEMORY = 2**33  # bytes of activations in predictions
CHUNK = 500  # images for which plain networks predict at a time
QUICK_SAMPLES = 5  # networks in the predictions of a quick trial
NUMBERED = re.compile(r"(ensemble|livi-mixture|livi-pooled)-([1-9]\d*)")


@dataclass(frozen=True)
class Task:
    """The images, seed and schedule of a fit.

    Args:
        folder: for networks and checkpoints, so that a run can be continued and methods start from the same networks.
        samples: number of networks in a prediction.
        epochs, fit_epochs: of training the networks that fits start from, and of fits on the bound; by default those
            of the problem and of the method.
        gradients: number of gradients for methods that start from scratch, in place of their own schedule.
        settings: of the method; `fit_method` takes them from its name.
    """

    sets: Sets
    seed: int
    folder: Path
    deadline: Deadline = field(default_factory=Deadline)
    quick: bool = False
    samples: int = 100
    epochs: int | None = None
    fit_epochs: float | None = None
    gradients: int | None = None
    norm: str = "batch"
    settings: Settings = field(default_factory=Settings)
    say: Callable[[str], None] = lambda _: None

    @property
    def problem(self) -> ImageProblem:
        return self.sets.problem

    @property
    def device(self) -> torch.device:
        return self.sets.train.inputs.device

    @cached_property
    def data(self) -> tuple[Tensor, Tensor]:
        inputs, labels = self.sets.train
        return _channels_last(inputs), labels


@dataclass(frozen=True)
class Fitted:
    """Posteriors with equal weights, which predict with `samples` networks in all.

    Args:
        seconds: of fitting alone; `start_seconds` are those of training the networks that the fits started from.
    """

    posteriors: Sequence[Posterior]
    samples: int
    seconds: float
    start_seconds: float = 0.0

    def predict(self, inputs: Tensor) -> ClassificationPrediction:
        parts, limit = [], GPU_MEMORY if inputs.is_cuda else None
        inputs = _channels_last(inputs)
        for posterior, count in self._networks:
            found = posterior.predict(inputs, num_samples=count, memory_limit=limit)
            assert isinstance(found, ClassificationPrediction)
            parts.append(found.logits)
        return ClassificationPrediction(torch.cat(parts), Categorical())

    @cached_property
    def _networks(self) -> list[tuple[Posterior, int]]:
        """Each posterior with its number of networks, frozen so that every prediction uses the same ones."""
        wanted = max(1, self.samples // len(self.posteriors))
        return [_frozen(posterior, wanted) for posterior in self.posteriors]


def _channels_last(images: Tensor) -> Tensor:
    """The images in the memory format that is fastest for convolutions on a GPU."""
    if not images.is_cuda or images.shape[1] == 1:
        return images
    return images.contiguous(memory_format=torch.channels_last)


def _frozen(posterior: Posterior, wanted: int) -> tuple[Posterior, int]:
    """The posterior with fixed networks, and their number; a linearised one, which cannot be frozen, is unchanged."""
    members = getattr(posterior.sampler, "num_members", None)
    if members is not None:
        return posterior, min(members, wanted)
    try:
        return posterior.frozen(wanted), wanted
    except TypeError:
        return posterior, wanted


@dataclass(frozen=True)
class PlainNetworks:
    """Trained networks with equal weights."""

    nets: Sequence[nn.Module]
    seconds: float
    start_seconds: float = 0.0

    @property
    def posteriors(self) -> Sequence[Posterior]:
        return ()

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> ClassificationPrediction:
        outputs = [torch.cat([net(chunk) for chunk in inputs.split(CHUNK)]) for net in self.nets]
        return ClassificationPrediction(torch.stack(outputs), Categorical())


Answer = Fitted | PlainNetworks


def check_method(name: str, problem: ImageProblem) -> None:
    """Raise for an unknown method, or settings that do not apply to it."""
    base, _ = split_name(name)
    if base not in METHODS and base != "livi-smallest" and not NUMBERED.fullmatch(base):
        allowed = [*METHODS, "ensemble-K", "livi-smallest", "livi-mixture-K", "livi-pooled-K"]
        raise ValueError(f"methods: expected some of {', '.join(allowed)}, got {base!r}.")
    check_settings(name, trained=problem.epochs is not None)


def default_methods(problem: ImageProblem, quick: bool = False) -> tuple[str, ...]:
    """All methods that are installed and can fit the problem's network; a few of them for a quick trial."""
    members = 2 if quick else 5 if problem.classes == 10 else 4
    if problem.epochs is None:
        some = AT_SCALE[:2] if quick else METHODS
        rivals = [name for name in some if name not in LISTED_APART + NOT_POSSIBLE and METHODS[name].installed]
        other = "livi-mixture-2" if quick else "livi-mixture-1"  # livi has five components where images are many
        return ("map", f"ensemble-{members}", *rivals, "livi", other, "livi-smallest")
    rivals = [name for name in AT_SCALE[: 1 if quick else None] if METHODS[name].installed]
    smallest = () if quick else ("livi-smallest",)
    return ("map", f"ensemble-{members}", *rivals, "livi", *smallest, f"livi-pooled-{members}")


def fit_method(name: str, task: Task) -> Answer:
    """Fit one method.

    Raises:
        OutOfTime: the deadline has passed; the next run continues fits on the bound and trainings.
    """
    base, settings = split_name(name)
    task = replace(task, settings=settings, samples=int(settings.draws or task.samples))
    numbered = NUMBERED.fullmatch(base)
    kind, count = (numbered[1], int(numbered[2])) if numbered else (base, 1)
    if kind in ("map", "ensemble") and task.problem.epochs is not None:
        members = [_trained_member(task, number) for number in range(5 if base == "ensemble" else count)]
        return PlainNetworks([member.net for member in members], sum(member.seconds for member in members))
    if kind == "ensemble" and numbered:
        return _timed(task, lambda: _fit_ensemble(task, count))
    if kind == "livi-pooled":
        # Parts have one component and share the checkpoint of the method that does; livi by itself may have several.
        single = "livi-mixture-1" if task.problem.epochs is None else "livi"
        return _fit_pooled(task, name.replace(base, single), count)
    if kind == "livi-mixture":
        return _fit_registered(task, "livi", name, components=count)
    if kind == "livi-smallest":
        return _fit_registered(task, "livi", name, entropy=SmallestSingularValue(), components=1)
    return _fit_registered(task, base, name)


def fit_livi(task: Task, name: str, **options: Any) -> Fitted:
    """`livi.fit` with these options besides those of the benchmark; the name is that of its checkpoint."""
    return _fit_registered(task, "livi", name, **options)


def _fit_ensemble(task: Task, count: int) -> Posterior:
    length = _default_recipe(task).map_steps if task.gradients is None else max(1, task.gradients // count)
    options = task.settings.options() | {"members": count, "steps": length, "seed": _seed(task, 0)}
    if task.quick:
        options |= {"steps": _quick_gradients(task), "batch_size": QUICK_BATCH, "recipe": Recipe(map_rate=QUICK_RATE)}
    return fit_ensemble(*_arguments(task), **options)


def _fit_pooled(task: Task, name: str, count: int) -> Fitted:
    parts = [_fit_registered(task, "livi", name, member=member, components=1) for member in range(count)]
    draws = count * max(1, task.samples // count)
    return Fitted(
        [pool([posterior for part in parts for posterior in part.posteriors], draws)],
        draws,
        sum(part.seconds for part in parts),
        sum(part.start_seconds for part in parts),
    )


def _fit_registered(task: Task, method: str, name: str, member: int = 0, **options: Any) -> Fitted:
    """A method of `livi.rivals.METHODS`, started from a fresh network or a trained one."""
    chosen = METHODS[method]
    on_the_bound = chosen.spend is steps_on_the_bound
    options = joined_options(task.settings.options(), options)
    options = joined_options(options, _schedule(task, method, _components(task, method, options)))
    options |= {"seed": _seed(task, member), "progress": False}
    start, seconds = build(task.problem, _seed(task, member), quick=task.quick, norm=task.norm), 0.0
    if task.problem.epochs is not None:
        trained = _trained_member(task, member)
        start, seconds = trained.net.requires_grad_(True), trained.seconds
        options |= {"augment": CropFlip()}
        if on_the_bound:
            options |= {"start": "net"}
            options |= {"autocast": torch.bfloat16} if task.device.type == "cuda" else {}
        else:
            options["recipe"] = Recipe(map_steps=0, map_restarts=1)
    path = None
    if on_the_bound:
        options |= {"callbacks": [StopAt(task.deadline)]}
        if task.deadline.ends is not None:
            path = task.folder / f"{name}-{_seed(task, member)}{_start_name(task)}.livi"
            options |= {"checkpoint": path}
    return _timed(task, lambda: chosen.fit(*_arguments(task, start), **options), seconds, path)


def _schedule(task: Task, method: str, components: int) -> dict[str, Any]:
    """Options for the length of the fit; none if the method decides it."""
    chosen = METHODS[method]
    if task.quick:
        return _quick_schedule(task, method, components)
    length = task.settings.fit or task.fit_epochs
    if chosen.spend is steps_on_the_bound and length is not None:
        return {"steps": max(1, round(length * _problem(task).data.steps_per_epoch))}
    return {} if task.gradients is None else chosen.spend(Budget(task.gradients, _default_recipe(task, components)))


def _quick_schedule(task: Task, method: str, components: int) -> dict[str, Any]:
    """A few steps in small batches, with a learning rate at which they learn something from scratch."""
    chosen, batches = METHODS[method], {"batch_size": QUICK_BATCH}
    gradients = max(1, _quick_gradients(task) // components)  # of each component
    if chosen.spend is not steps_on_the_bound:
        spent = chosen.spend(Budget(gradients, _default_recipe(task)))
        return joined_options(spent, {"recipe": Recipe(map_rate=QUICK_RATE)}) | batches
    steps = max(1, round(QUICK_STEPS * gradients / QUICK_GRADIENTS))
    if task.problem.epochs is not None:
        return {"steps": steps} | batches
    return {"recipe": Recipe(steps=steps, map_steps=gradients, map_rate=QUICK_RATE)} | batches


def _quick_gradients(task: Task) -> int:
    return QUICK_GRADIENTS if task.gradients is None else task.gradients


def _epochs(task: Task) -> int | None:
    """Epochs of training the network that fits start from; None if they start from scratch."""
    if task.problem.epochs is None:
        return None
    return QUICK_EPOCHS if task.quick else int(task.settings.epochs or task.epochs or task.problem.epochs)


def _start_name(task: Task) -> str:
    """How a network was trained, for the names of its file and of fits from it; empty for fits from scratch."""
    if task.problem.epochs is None:
        return ""
    decay = "" if task.settings.decay is None else f"-decay-{task.settings.decay:g}"
    return f"-{_epochs(task)}-epochs{decay}{'' if task.norm == 'batch' else f'-{task.norm}'}"


def _trained_member(task: Task, number: int) -> Trained:
    """Network number k of this seed, trained once and kept for all methods."""
    seed = _seed(task, number)
    epochs = _epochs(task)
    assert epochs is not None
    net = build(task.problem, seed, quick=task.quick, norm=task.norm)
    decay = task.settings.decay
    path = task.folder / f"network-{seed}{_start_name(task)}.livi"
    return train(
        net,
        *task.sets.train,
        Training(epochs) if decay is None else Training(epochs, weight_decay=decay),
        seed=seed,
        path=path,
        deadline=task.deadline,
        say=lambda text: task.say(f"network {seed}, {text}"),
    )


def _timed(
    task: Task, fit: Callable[[], Posterior], start_seconds: float = 0.0, checkpoint: Path | None = None
) -> Fitted:
    """A fit with its seconds, including those of earlier runs, which are kept in a file next to its checkpoint."""
    if task.deadline.passed():
        raise OutOfTime
    noted = None if checkpoint is None else checkpoint.with_suffix(".json")
    before = {"seconds": 0.0, "finished": False}
    if noted is not None and noted.exists():
        before = json.loads(noted.read_text(encoding="utf-8"))
    task.folder.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    posterior = fit()
    if task.device.type == "cuda":
        torch.cuda.synchronize(task.device)
    seconds = before["seconds"] + (0.0 if before["finished"] else time.perf_counter() - begun)
    if noted is not None:
        replace_file(noted, [json.dumps({"seconds": seconds, "finished": not interrupted(posterior)}).encode()])
    if interrupted(posterior) and task.deadline.passed():
        raise OutOfTime
    return Fitted([completed(posterior)], task.samples, seconds, start_seconds)


def _arguments(task: Task, net: nn.Module | None = None) -> tuple[nn.Module, tuple[Tensor, Tensor], Categorical]:
    net = build(task.problem, _seed(task, 0), quick=task.quick, norm=task.norm) if net is None else net
    return net.to(task.device), task.data, Categorical()


def _problem(task: Task) -> Problem:
    return Problem.of(*_arguments(task))


def _components(task: Task, method: str, options: dict[str, Any]) -> int:
    """The number of components that the fit will have."""
    if method != "livi" or task.problem.epochs is not None:
        return options.get("components") or 1
    chosen = {name: options[name] for name in ("generator", "noise", "recipe", "components") if name in options}
    return Choices(**chosen).components_for(Size.of(_problem(task)))


def _default_recipe(task: Task, components: int = 1) -> Recipe:
    """The default recipe for the problem, with the samples and starts of all components together."""
    recipe = default_recipe(Size.of(_problem(task)), components)
    restarts = max(recipe.map_restarts, components)
    return replace(recipe, num_samples=components * recipe.num_samples, map_restarts=restarts)


def _seed(task: Task, member: int) -> int:
    return SEEDS_APART * task.seed + member
