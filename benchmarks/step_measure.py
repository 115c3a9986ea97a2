"""One way to train one network: seconds of a step, where they go, and the most memory that tensors take.

Memory counts everything but the data: network, generator, gradients, Adam's moments, what a pass keeps. It is torch's
own count on a GPU; on a CPU there is none.
"""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import livi
from benchmarks.step_cases import EXAMPLES, Case
from livi import SmallestSingularValue
from livi.experiments.rows import Row
from livi.family.entropy import Exact
from livi.family.noise import DiagonalNoise
from livi.inference import Plan, Recipe, Trainer
from livi.inference.callbacks import Callback, Callbacks, Run
from livi.inference.capture import recording_stream, replay_seconds
from livi.inference.map_fits import MapStart
from livi.rivals.mean_field import Constant

FIRST, LAST = {"cuda": 210, "cpu": 10}, {"cuda": 410, "cpu": 90}  # steps between which a fit is timed: all are recorded
STRETCH = {"cuda": 50, "cpu": 20}  # steps, with as many of every kind as any other
REPEATS = {"cuda": 30, "cpu": 15}
TOGETHER = 5  # steps between two looks at the clock, for a look waits for the device
EVERY = 10  # steps from one entropy to the next, as the default above 5,000 weights has it
SLOW_STEPS = 2  # with an entropy by LOBPCG


@dataclass(frozen=True)
class Bench:
    """A network's random examples on a device, and what was held before anything was built."""

    case: Case
    device: torch.device
    data: tuple[Tensor, Tensor]
    before: int

    @classmethod
    def of(cls, case: Case, device: torch.device) -> Bench:
        data = case.examples(EXAMPLES[device.type], device)
        warm_libraries(device)
        forget(device)
        return cls(case, device, data, held(device))

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = self.data
        return x[: self.case.batch], y[: self.case.batch]

    def network(self) -> nn.Module:
        torch.manual_seed(0)
        return self.case.build().to(self.device)

    def memory(self) -> int | None:
        """The most that was held since `forget`."""
        return torch.cuda.max_memory_allocated(self.device) - self.before if self.device.type == "cuda" else None

    def seconds(self, step: Callable[[], Any], count: int | None = None) -> float:
        """Of a step, the median over stretches of five, after two that warm up; eager or replayed."""
        count = count or REPEATS[self.device.type]
        each, taken = min(TOGETHER, count), list[float]()
        for _ in range(2):
            step()
        for _ in range(count // each):
            synchronise(self.device)
            started = time.perf_counter()
            for _ in range(each):
                step()
            synchronise(self.device)
            taken.append((time.perf_counter() - started) / each)
        return median(taken)

    def autocast(self) -> torch.autocast:
        dtype = self.case.autocast
        return torch.autocast(self.device.type, dtype or torch.bfloat16, enabled=dtype is not None)


# --- plain training -------------------------------------------------------------------------------


def plain(bench: Bench, _: int) -> Row:
    """Adam on the network itself, as everybody writes it, and the same step recorded as a CUDA graph."""
    net, (x, y) = bench.network().train(), bench.batch
    weights = sum(parameter.numel() for parameter in net.parameters())
    if bench.device.type == "cuda" and bench.case.channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    cuda = bench.device.type == "cuda"
    optimiser = torch.optim.Adam(net.parameters(), capturable=cuda, fused=cuda)

    def step(batch: tuple[Tensor, Tensor]) -> None:
        optimiser.zero_grad(set_to_none=False)
        with bench.autocast():
            loss = F.cross_entropy(net(batch[0]).float(), batch[1])
        loss.backward()
        optimiser.step()

    eager = bench.seconds(lambda: step((x, y)))
    row: Row = {"weights": weights, "eager_seconds": eager, "seconds": eager, "step_memory": bench.memory()}
    if cuda:
        replayed = replay_seconds(step, (x, y), torch.Generator(bench.device), clock=bench.seconds)
        row |= {"captured_seconds": replayed, "seconds": eager if replayed is None else min(eager, replayed)}
    return row | {"memory": bench.memory()}


def ensemble_member(bench: Bench, _: int) -> Row:
    """A MAP fit, as the members of livi's ensembles are."""
    made = livi.Problem.of(bench.network(), bench.data, livi.Categorical(), batch_size=bench.case.batch)
    recipe = Recipe(map_steps=LAST[bench.device.type], map_restarts=1, map_rate=1e-3)
    search = MapStart(replace(made, autocast=bench.case.autocast), recipe, seed=0)
    batch = made.data.first()
    for _ in range(5):
        search.stepper(batch)
    taken = bench.seconds(lambda: search.stepper(batch))
    return {"seconds": taken, "memory": bench.memory(), "recorded": search.stepper.captured}


# --- fits on the bound ----------------------------------------------------------------------------


def planned(bench: Bench, samples: int, **options: Any) -> Plan:
    """Begun around the network's weights."""
    recipe = Recipe(
        steps=LAST[bench.device.type],
        num_samples=samples,
        num_entropy_samples=1,
        entropy_every=options.pop("every", EVERY),
    )
    given = {"batch_size": bench.case.batch, "start": "net", "autocast": bench.case.autocast} | options
    plan = livi.plan(bench.network(), bench.data, livi.Categorical(), recipe=recipe, **given)
    spread, relative = plan.recipe.spread, plan.recipe.relative_spread
    plan.bound.family.begin_around(plan.layout.flatten()[None], spread, relative=relative)
    return plan


def fitted(bench: Bench, samples: int, **options: Any) -> tuple[Row, Trainer]:
    """A fit of a few hundred steps: what they took, what memory all of it took, and what the plan had said."""
    plan, clock = planned(bench, samples, **options), _Clock(bench.device)
    trainer = Trainer(plan.bound, plan.data, plan.recipe, callbacks=Callbacks([clock]))
    trainer.run()
    network = sum(parameter.nbytes for parameter in plan.layout.module.parameters())
    row: Row = {
        "weights": plan.layout.num_params,
        "generator_weights": sum(parameter.numel() for parameter in plan.bound.parameters()),
        "strategy": repr(plan.problem.strategy),
        "seconds": clock.per_step,
        "memory": bench.memory(),
        "planned_seconds": plan.cost.seconds,
        "planned_memory": plan.cost.memory + network,  # beside the network that was passed
        "products": trainer.products,
        "missed": float(trainer.missed / trainer.estimated.clamp_min(1.0)),
        "recorded": sorted({str(way[0]) for _, way in trainer.stepper.recordings}),
        "refused": {str(how[0]): reason for how, reason in trainer.stepper.refused.items()},
    }
    return row, trainer


def ours(bench: Bench, samples: int) -> Row:
    """`livi.fit`: a whole fit, its step in parts, and the memory of a single step."""
    row = _fitted_and_taken_apart(bench, samples)
    return row | {"step_memory": _step_memory(bench, samples)}


def _fitted_and_taken_apart(bench: Bench, samples: int) -> Row:
    """A step is the network's passes, the generator with Adam, and the entropy's share of every step."""
    row, trainer = fitted(bench, samples)
    batch = trainer.data.first()
    none, gradient = (bench.seconds(partial(trainer.stepper, batch, part)) for part in ("none", "gradient"))
    network = _network_seconds(bench, trainer, samples)
    return row | {
        "network_seconds": network,
        "generator_seconds": max(0.0, none - network),
        "entropy_seconds": max(0.0, gradient - none) / EVERY,
    }


def _network_seconds(bench: Bench, trainer: Trainer, samples: int) -> float:
    """The passes of S weight vectors that are simply there, recorded where they can be."""
    bound, theta = trainer.bound, trainer.bound.family.layout.flatten().expand(samples, -1).clone()
    batch = trainer.data.first()

    def step(batch: Any) -> Tensor:
        total = theta.new_zeros(())
        for rows in theta.split(1) if isinstance(bound.strategy, livi.Loop) else (theta,):
            leaf = rows.detach().requires_grad_()
            nats = bound.log_likelihood(leaf, *batch).mean()
            nats.backward()
            total = total + nats.detach()
        return total

    eager = bench.seconds(lambda: step(batch))
    if bench.device.type != "cuda":
        return eager
    replayed = replay_seconds(step, batch, torch.Generator(bench.device), clock=bench.seconds)
    return eager if replayed is None else min(eager, replayed)


def _step_memory(bench: Bench, samples: int) -> int | None:
    """Of eager steps with and without an entropy, Adam's moments included."""
    if bench.device.type != "cuda":
        return None
    forget(bench.device)
    plan = planned(bench, samples, capture=False)
    trainer = Trainer(plan.bound, plan.data, plan.recipe, capture=False)
    gc.collect()
    torch.cuda.reset_peak_memory_stats(bench.device)
    for part in ("none", "gradient", "none"):
        trainer.stepper(plan.data.first(), part)
    return bench.memory()


def mean_field(bench: Bench, samples: int) -> Row:
    """Independent weights, by the same loop."""
    noise = lambda layout: DiagonalNoise(layout.num_params, 0.02)  # noqa: E731
    return fitted(bench, samples, generator=Constant.for_layout, noise=noise, entropy=Exact(), every=1)[0]


def smallest(bench: Bench, samples: int) -> Row:
    """L'' as in the paper: the smallest singular value by LOBPCG at every step."""
    plan = planned(bench, samples, entropy=SmallestSingularValue(), every=1, capture=False)
    trainer = Trainer(plan.bound, plan.data, replace(plan.recipe, steps=100), capture=False)
    batch, reports = plan.data.first(), []
    taken = bench.seconds(lambda: reports.append(trainer.stepper(batch, "gradient").reports[0]), SLOW_STEPS)
    return {
        "seconds": taken,
        "memory": bench.memory(),
        "products": reports[-1].products,
        "missed": sum(float((~report.converged).float().mean()) for report in reports) / len(reports),
    }


# --- peers ----------------------------------------------------------------------------------------


def bayesian_torch(bench: Bench, _: int) -> Row:
    """A step of mean field by bayesian-torch, reparametrised: one draw of all weights for a batch."""
    converting = importlib.import_module("bayesian_torch.models.dnn_to_bnn")
    net, (x, y) = bench.network(), bench.batch
    settings = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -4.0}
    how = {"type": "Reparameterization", "moped_enable": True, "moped_delta": 0.1}
    converting.dnn_to_bnn(net, settings | how)
    net = net.to(bench.device).train()
    optimiser = torch.optim.Adam(net.parameters())

    def step() -> None:
        optimiser.zero_grad()
        with bench.autocast():
            fit = F.cross_entropy(net(x).float(), y)
        (fit + converting.get_kl_loss(net) / len(bench.data[1])).backward()
        optimiser.step()

    return {"seconds": bench.seconds(step), "memory": bench.memory()}


def laplace_torch(bench: Bench, _: int) -> Row:
    """Laplace's approximation by laplace-torch, Kronecker factors of all layers: its fit, for one batch of its data."""
    laplace, batches = importlib.import_module("laplace"), 2
    x, y = (part[: batches * bench.case.batch] for part in bench.data)
    loader = DataLoader(TensorDataset(x, y), batch_size=bench.case.batch)

    def fit() -> None:
        made = laplace.Laplace(
            bench.network().eval(), "classification", subset_of_weights="all", hessian_structure="kron"
        )
        made.fit(loader)

    return {"seconds": bench.seconds(fit, 1) / batches, "memory": bench.memory()}


PEERS = {"bayesian-torch": "bayesian_torch", "laplace-torch fit": "laplace"}  # and their packages
WAYS: dict[str, Callable[[Bench, int], Row]] = {
    "plain": plain,
    "livi": ours,
    "mean field": mean_field,
    "ensemble member": ensemble_member,
    "L'' by LOBPCG": smallest,
    "bayesian-torch": bayesian_torch,
    "laplace-torch fit": laplace_torch,
}


# --- clocks and memory ----------------------------------------------------------------------------


class _Clock(Callback):
    """Seconds of the steps in between: the median of a few stretches, in one of which a step may be recorded anew."""

    def __init__(self, device: torch.device) -> None:
        kind = device.type
        self.device, self.moments = device, list[float]()
        self.looks = range(FIRST[kind], LAST[kind] + 1, STRETCH[kind])

    def on_step(self, run: Run) -> None:
        if run.step in self.looks:
            synchronise(self.device)
            self.moments.append(time.perf_counter())

    @property
    def per_step(self) -> float:
        return median(later - earlier for earlier, later in pairwise(self.moments)) / self.looks.step


def held(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def warm_libraries(device: torch.device) -> None:
    """Matrix products keep memory to work in, once for each stream and thread: that is no network's."""
    if device.type != "cuda":
        return
    for stream in (torch.cuda.current_stream(device), recording_stream()):
        with torch.cuda.stream(stream):
            layer, x = nn.Linear(64, 64, device=device), torch.ones(64, 64, device=device)
            (layer(x) @ x).sum().backward()
    torch.cuda.synchronize(device)


def forget(device: torch.device) -> None:
    """What one way left behind is not another's memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
