"""Ordinary training of a residual network: the start of fits, and the members of ensembles.

SGD with Nesterov momentum, weight decay on all weights, a learning rate that rises over one epoch and falls along a
cosine, crops and flips. Weight decay w is a prior N(0, 1 / (w N)), of standard deviation 0.2 for 5e-4 and 50,000
images. On a GPU it runs in bfloat16, channels last, and replays each step as a CUDA graph where that is quicker.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi import checks
from livi.experiments.deadlines import Deadline, OutOfTime
from livi.inference.capture import Stepper
from livi.inference.recipe import cosine
from livi.model.data import Batch, CropFlip, TensorData, epoch_seed
from livi.posterior.storage import file as storage

SAVE_EVERY = 60.0  # seconds


@dataclass(frozen=True)
class Training:
    """How a network is trained; `rate` is the largest learning rate."""

    epochs: int
    rate: float = 0.1
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        checks.positive_int("epochs", self.epochs)
        checks.positive_int("batch_size", self.batch_size)


@dataclass(frozen=True)
class Trained:
    """A network in evaluation mode, and the seconds that its training took."""

    net: nn.Module
    seconds: float


def train(
    net: nn.Module,
    inputs: Tensor,  # (n, c, h, w)
    labels: Tensor,  # (n,)
    training: Training,
    *,
    seed: int,
    path: Path | None = None,
    deadline: Deadline | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Trained:
    """Train a copy of the network on the device of the images.

    Args:
        seed: of the order of the images, crops and flips.
        path: a file to which the state is saved now and then, and the network at the end. If it exists, training
            continues from it with the same result as without interruption; a finished network is only read.
        deadline: when to stop, after the current epoch.

    Raises:
        OutOfTime: the deadline has passed; the file has the state so far.
        ValueError: the file is of another training.
    """
    run = _Run(copy.deepcopy(net), inputs, labels, training, seed)
    if path is not None and path.exists():
        run.load(path)
    saved = time.monotonic()
    while run.epoch < training.epochs:
        if deadline is not None and deadline.passed():
            raise OutOfTime
        loss = run.one_epoch()
        say(f"epoch {run.epoch} of {training.epochs}: loss {loss:.3f}, {run.seconds:.0f} s")
        late = deadline is not None and deadline.passed()
        if path is not None and (late or run.epoch == training.epochs or time.monotonic() - saved > SAVE_EVERY):
            run.save(path)
            saved = time.monotonic()
    net = run.net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return Trained(net.eval().requires_grad_(False), run.seconds)


class _Run:
    """The state of a training."""

    def __init__(self, net: nn.Module, inputs: Tensor, labels: Tensor, training: Training, seed: int) -> None:
        self.training, self.seed, self.epoch, self.seconds = training, seed, 0, 0.0
        self.on_gpu = inputs.is_cuda
        layout = torch.channels_last if self.on_gpu else torch.contiguous_format
        self.net: nn.Module = net.to(inputs.device).to(memory_format=layout).train()  # type: ignore[call-overload]
        self.layout = layout
        self.data = TensorData(inputs, labels, training.batch_size, augment=CropFlip())
        self.parameters = list(self.net.parameters())
        self.momenta = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.rate = torch.zeros((), device=inputs.device)
        self.stepper = Stepper(self._step, lambda: [*self.parameters, *self.momenta, *self.net.buffers()])

    def one_epoch(self) -> float:
        """Train for an epoch and return its mean loss; reading it waits for the device."""
        begun, total = time.perf_counter(), torch.zeros((), device=self.rate.device)
        steps = self.data.steps_per_epoch
        for index, (inputs, labels) in enumerate(self.data.epoch(epoch_seed(self.seed, self.epoch))):
            done = self.epoch * steps + index
            rise = min(1.0, (done + 1) / steps)
            self.rate.fill_(self.training.rate * rise * cosine(done / (self.training.epochs * steps)))
            total += self.stepper((inputs.contiguous(memory_format=self.layout), labels))
        loss = float(total) / steps
        self.epoch, self.seconds = self.epoch + 1, self.seconds + time.perf_counter() - begun
        return loss

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        momenta = {f"momentum.{index}": momentum for index, momentum in enumerate(self.momenta)}
        tensors = self.net.state_dict() | ({} if self.epoch == self.training.epochs else momenta)
        storage.write(path, tensors, self._facts() | {"epoch": self.epoch, "seconds": self.seconds})

    def load(self, path: Path) -> None:
        tensors, meta = storage.read(path, self.rate.device)
        if {name: meta.get(name) for name in self._facts()} != self._facts():
            raise ValueError(f"{path}: expected a training like this one, got another; choose another folder.")
        self.epoch, self.seconds = meta["epoch"], meta["seconds"]
        for index, momentum in enumerate(self.momenta):
            momentum.copy_(tensors.pop(f"momentum.{index}", momentum))
        self.net.load_state_dict(tensors)

    def _facts(self) -> dict[str, Any]:
        sizes = [self.data.num_data, sum(parameter.numel() for parameter in self.parameters)]
        return {"training": asdict(self.training), "seed": self.seed, "sizes": sizes}

    def _step(self, batch: Batch) -> Tensor:
        """Forward, backward and SGD with Nesterov momentum; reads no value back, so that it can be recorded."""
        inputs, labels = batch
        with torch.autocast(self.rate.device.type, torch.bfloat16, enabled=self.on_gpu):
            outputs = self.net(inputs)
        loss = F.cross_entropy(outputs.float(), labels)
        gradients = list(torch.autograd.grad(loss, self.parameters))
        with torch.no_grad():
            torch._foreach_add_(gradients, self.parameters, alpha=self.training.weight_decay)
            torch._foreach_mul_(self.momenta, self.training.momentum)
            torch._foreach_add_(self.momenta, gradients)
            torch._foreach_add_(gradients, self.momenta, alpha=self.training.momentum)
            torch._foreach_mul_(gradients, -self.rate)
            torch._foreach_add_(self.parameters, gradients)
        return loss.detach()
