# ruff: noqa: ARG002 -- a family need not use all arguments
"""Computations that two processes do together and one does alone, and functions that start the two.

`python tests/support/processes.py TASK FOLDER` is one of the processes; the tests import the same functions.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.experiments.spreading import run_all
from livi.family.family import Draw, Family, Rates, exactly
from livi.inference.ranks import Group, joined
from livi.posterior import storage

TESTS = Path(__file__).resolve().parents[1]
RECIPE = {"steps": 60, "map_steps": 20, "map_restarts": 2, "num_samples": 4, "num_entropy_samples": 2}


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))


def examples(count=25):
    x = torch.linspace(-1, 1, count)[:, None]
    return x, torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(1))


def loader():
    """Batches of 10, 10 and 5, shuffled."""
    return DataLoader(TensorDataset(*examples()), batch_size=10, shuffle=True)


class Diagonal(Family):
    """A user-defined family, which knows nothing of ranks."""

    def __init__(self, layout):
        super().__init__(layout)
        self.mean, self.log_std = (nn.Parameter(torch.zeros(layout.num_params)) for _ in range(2))

    def draw(self, num_samples, rng=None, *, latents=None):
        return Draw(self.mean + self.log_std.exp() * torch.randn(num_samples, self.num_params, generator=rng))

    def entropy(self, draw, how):
        return exactly(self.log_std.sum())

    def centre(self):
        return self.mean.detach()

    def begin_around(self, rows, spread, *, relative=False):
        self.mean.data.copy_(rows[0])
        self.log_std.data.fill_(-3.0)

    def rates(self):
        return Rates([self.mean], [], [self.log_std])


@dataclass(frozen=True)
class Hutchinson:
    """A user-defined entropy estimator, which draws a random number for each latent vector."""

    def __call__(self, generator, z, noise_std, rng=None):
        estimate = livi.Exact()(generator, z, noise_std)
        return replace(estimate, nats=estimate.nats + 1e-3 * torch.randn(len(z), generator=rng))


# --- one step of a bound --------------------------------------------------------------------------


def case(num_samples, entropy=None, net=None, **options):
    recipe = livi.Recipe(**RECIPE | {"num_samples": num_samples, "num_entropy_samples": min(3, num_samples)})
    options = {"last_layer": "sampled", "seed": 3, "entropy": entropy, "recipe": recipe} | options
    return livi.plan(net or network(), options.pop("data", None) or loader(), livi.Gaussian(), **options)


def one_by_one():
    prepared = case(4)
    prepared.bound.strategy = livi.Loop()
    return prepared


CASES = {
    "samples": lambda: case(4),
    "samples one by one": one_by_one,
    "examples": lambda: case(3),
    "examples of tensors": lambda: case(1, data=examples(), batch_size=9),
    "fewer examples than ranks": lambda: case(1, data=[(x[None], y[None]) for x, y in zip(*examples(), strict=True)]),
    "a mixture": lambda: case(2, components=2),
    "Lanczos": lambda: case(4, livi.Lanczos(max_iterations=20)),
    "the smallest singular value": lambda: case(4, livi.SmallestSingularValue(tolerance=1e-9)),
    "learned noise": lambda: case(4, noise=lambda layout: livi.DiagonalNoise(layout.num_params)),
    "an estimator of the user's": lambda: case(4, Hutchinson()),
    "a family of the user's": lambda: case(4, family=Diagonal),
    "BatchNorm": lambda: case(2, net=nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))),
    "an exact last layer": lambda: case(3, data=examples(), last_layer="exact"),
}


def first_step(prepared, ranks, part="value"):
    """Terms and gradients of the bound on the last batch, the small one, and the state of the generator afterwards."""
    bound, rng = prepared.bound, torch.Generator().manual_seed(7)
    *_, batch = ranks.part(prepared.data, bound, fewest=prepared.problem.fewest).epoch(0)
    own, accumulate = [], bound.accumulate
    bound.accumulate = lambda *args, **kwargs: own.append(accumulate(*args, **kwargs)) or own[0]
    bound.zero_grad()
    total = ranks.accumulate(bound, batch, rng, entropy=part, kl_weight=0.5)
    del bound.accumulate
    return {
        "terms": torch.stack([total.log_likelihood, total.log_prior, total.entropy]),
        "own": own[0].bound,
        "gradients": {name: p.grad for name, p in bound.named_parameters() if p.grad is not None},
        "rng": rng.get_state(),
    }


# --- whole fits -----------------------------------------------------------------------------------


def fitted(steps=60, recipe=None, **options):
    options = {"recipe": livi.Recipe(**RECIPE | {"steps": steps} | (recipe or {})), "last_layer": "sampled"} | options
    return livi.fit(options.pop("net", network()), loader(), livi.Gaussian(), progress=False, **options)


def stopped_early():
    """A fit that stops early, since its validation examples get worse from the beginning."""
    x, y = examples(7)
    options = {"validation": (x, -y), "validate_every": 10, "recipe": {"kl_warm_up": 0.0, "spread": 1e-3}}
    return fitted(callbacks=[livi.EarlyStopping(patience=2)], **options)


def outcome(posterior):
    return {
        "draws": posterior.sample(3, torch.Generator().manual_seed(9)).cpu(),
        "bounds": torch.tensor([row["bound"] for row in posterior.history]),
        "steps": [row["step"] for row in posterior.history],
        "stopped": posterior.plan.get("stopped_at"),
    }


class Poison(livi.Callback):
    """Sets a parameter of one rank to NaN, once."""

    def __init__(self, rank):
        self.rank, self.done = rank, False

    def on_step(self, run):
        if run.step == 25 and run.rank == self.rank and not self.done:
            next(run._training.bound.parameters()).data.fill_(float("nan"))
        self.done = self.done or run.step == 25


class StopAt(livi.Callback):
    def __init__(self, step, rank):
        self.step, self.rank = step, rank

    def on_step(self, run):
        if run.step >= self.step and run.rank == self.rank:
            run.stop("enough")


class GiveUp(livi.Callback):
    """Raises an error after this many steps."""

    def __init__(self, step):
        self.step = step

    def on_step(self, run):
        if run.step == self.step:
            raise StopIteration


class Killed(livi.Callback):
    """Kills the process of rank 1 after 45 steps, the first time, and records at which step each run starts."""

    def __init__(self, folder):
        self.folder = folder

    def on_start(self, run):
        if run.rank == 0:
            with open(self.folder / "starts", "a") as file:
                file.write(f"{run.step}\n")

    def on_step(self, run):
        if run.step == 45 and run.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)


# --- the processes --------------------------------------------------------------------------------


def together(folder):
    """Compute everything that is compared between two ranks and one process, in a group that the user has made."""
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {"bound": {name: first_step(make(), Group()) for name, make in CASES.items()}}
    for part in ("gradient", "none"):
        found["bound"][f"Lanczos, {part}"] = first_step(CASES["Lanczos"](), Group(), part)
    written = []
    write = storage.write_checkpoint
    storage.write_checkpoint = lambda path, state: (written.append(str(path)), write(path, state))
    found["fit"] = outcome(fitted(net=network(rank), validation=examples(8), checkpoint=folder / "whole"))
    found["sharded"] = outcome(fitted(shard=True, checkpoint=folder / "sharded", checkpoint_every=20))
    found["poisoned"] = outcome(fitted(callbacks=[Poison(rank=1)], recipe={"averaging": 0.9}))
    found["stopped"] = outcome(fitted(callbacks=[StopAt(33, rank=1)]))
    found["early"] = outcome(stopped_early())
    brief = {"callbacks": [StopAt(10, rank=0)], "recipe": {"map_steps": 1}}
    found["budget"] = fitted(500_000, budget=5.0 + rank, **brief).plan["recipe"]["steps"]
    rows = livi.CSVLogger(folder / f"rows{rank}.csv")
    for name, sharded in (("half", None), ("half sharded", True)):
        with contextlib.suppress(StopIteration):
            fitted(checkpoint=folder / name, checkpoint_every=20, shard=sharded, callbacks=[GiveUp(45), rows])
    found["alone"] = outcome(fitted(distributed=False))
    found["rows"] = list(run_all(slow_double, [rank, 1, 2, 3, 4, 5]))  # by the list of rank 0
    try:
        fitted(seed=rank)
    except ValueError as error:
        found["other seed"] = str(error)
    torch.save(found | {"written": written}, folder / f"found{rank}")


def slow_double(number):
    """A row of a benchmark, with facts about its process; later rows take less time."""
    time.sleep(0.05 * (5 - number))
    return {"number": number, "twice": 2 * number, "rank": os.environ["RANK"], "alone": type(joined()).__name__}


def on_a_gpu(folder):
    """Fits of two processes on one GPU, which Gloo allows."""
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {"fit": outcome(fitted(device="cuda")), "sharded": outcome(fitted(device="cuda", shard=True))}
    torch.save(found, folder / f"found{rank}")


def restarted(folder):
    """A fit during which one process is killed."""
    posterior = fitted(checkpoint=folder / "checkpoint", checkpoint_every=20, callbacks=[Killed(folder)])
    torch.save(outcome(posterior), folder / f"found{os.environ['RANK']}")


def spawn(task, folder):
    """Run this file in two processes that are started by hand."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    command = [sys.executable, __file__, task, str(folder)]
    running = [subprocess.Popen(command, env=environment | {"RANK": str(rank)}) for rank in range(2)]
    assert [one.wait(timeout=300) for one in running] == [0, 0]
    return [torch.load(folder / f"found{rank}") for rank in range(2)]


def torchrun(task, folder, *options):
    """Run this file in two processes that torchrun starts, on a free port."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "localhost:0", *options, __file__, task, str(folder)]
    subprocess.run(launcher, env=environment, check=True, timeout=300)
    return [torch.load(folder / f"found{rank}") for rank in range(2)]


if __name__ == "__main__":
    import torch.distributed.optim  # before Gloo's threads run

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    {"together": together, "on_a_gpu": on_a_gpu, "restarted": restarted}[sys.argv[1]](Path(sys.argv[2]))
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads may otherwise use what is gone at exit
