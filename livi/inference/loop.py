"""The training loop: steps that can be watched, interrupted, rolled back, and resumed bit for bit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from livi.family.entropy import Capturable, Valueless
from livi.family.objective import Bound, BoundTerms, EntropyPart
from livi.inference.callbacks import Callbacks
from livi.inference.capture import Stepper
from livi.inference.divergence import REMEDY, FitError, Window
from livi.inference.optimiser import clip, load_state, make_optimiser, own_state, set_rate, whole_state
from livi.inference.parameters import assign, blend, copied, values
from livi.inference.progress import FitProgress
from livi.inference.ranks import Alone
from livi.inference.recipe import LOG_EVERY, VALUE_EVERY, Recipe
from livi.inference.recordable import CaptureError
from livi.model.data import Batch, Data, remaining_batches
from livi.model.warning import warn
from livi.posterior import storage
from livi.running import CtrlC

SNAPSHOT_EVERY = 100  # steps between states that a fit can be rolled back to
WINDOW = SNAPSHOT_EVERY // LOG_EVERY  # logged steps that are judged together
MAX_ROLLBACKS = 3
MAX_RECORDINGS = 10
FORGIVEN_AFTER = 500  # steps since the last rollback, after which the learning rate is doubled again
TERMS = ("log_likelihood", "log_prior", "entropy")
NEVER = 2**62  # a step that no run reaches


class Trainer:
    """One fit's state: everything the next step depends on. `run` trains to the end; `state` and `load` save it.

    Args:
        checkpoint: file to write every `checkpoint_every` steps and at the end.
        facts: the plan's summary, stored in checkpoints so that a resumed run can be checked against it.
        capture: replay steps as CUDA graphs; see `livi.inference.capture.Stepper`.
        callbacks: called between steps, never within one; by default the progress alone.
        ranks: the processes that take every step together; see `livi.inference.ranks`.
        sharded: each of them keeps a part of the optimiser's state.

    Attributes:
        stopped: why a callback stopped the fit; empty where none did.
        parameters_of: the step whose parameters a callback put in place of the last ones, or None.
    """

    def __init__(
        self,
        bound: Bound,
        data: Data,
        recipe: Recipe,
        *,
        seed: int = 0,
        progress: FitProgress | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 500,
        facts: dict[str, Any] | None = None,
        capture: bool | None = None,
        callbacks: Callbacks | None = None,
        ranks: Alone | None = None,
        sharded: bool = False,
    ) -> None:
        self.bound, self.data, self.recipe, self.seed = bound, data, recipe, seed
        self.progress = progress or FitProgress(recipe.steps, quiet=True)
        self.callbacks = callbacks or Callbacks([self.progress])
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.facts = facts or {}
        self.start_log_likelihood = float("-inf")
        self.ranks, self.sharded = ranks or Alone(), sharded
        self.optimiser = make_optimiser(bound, recipe, sharded=sharded)
        device, dtype = bound.family.layout.device, bound.family.layout.dtype
        self.rng = torch.Generator(device=device).manual_seed(seed)
        self.step = self.repeated = 0  # repeated: the steps that were taken before a restart
        self.rate_scale = 1.0
        self.rollbacks = 0
        self.history: list[dict[str, float]] = []
        # What a step reads and changes besides the parameters lives on the device, so that a step can be recorded.
        self.clock = torch.zeros((), dtype=torch.long, device=device)
        self.kl_weight = torch.zeros((), dtype=dtype, device=device)
        self.entropy_weight = torch.ones((), dtype=dtype, device=device)
        self.missed = torch.zeros((), device=device)
        self.estimated = torch.zeros((), device=device)  # steps with an entropy; `missed` of them missed its tolerance
        self.usual_norm = torch.zeros((), dtype=dtype, device=device)
        self.failed_at = torch.full((len(TERMS),), NEVER, device=device)
        self.windows: list[Window] = []
        self.rolled_back_at = 0
        self.average = None if recipe.averaging is None else values(bound)
        self.interrupted, self.stopped = False, ""
        self.ctrl_c, self.mid_step = CtrlC(), False  # while True, only part of the state has taken the step
        self.parameters_of: int | None = None
        self.entropy, self.products, self.converging = bound.entropy, 0, True
        self.has_value = True  # whether the last step computed the entropy's value
        self.recordings = 0
        self.stepper = Stepper(
            self._advance, self._changed, self.rng, capture=capture, prepare=self._prepare, release=self._release
        )

    def run(self) -> None:
        """Train to the end. Ctrl-C stops early and keeps what has been learned; steps that diverge are undone.

        Raises:
            FitError: smaller steps diverged as well.
        """
        if self.step == 0 and self.average is not None:
            self.average = values(self.bound)  # the start may have moved the parameters since __init__
        self.callbacks.start(self)
        self._take_snapshot()
        try:
            with self.ctrl_c:
                while self.step < self.recipe.steps and not self.stopped:
                    if trouble := self._run_until_trouble():
                        self._roll_back(trouble)
        except KeyboardInterrupt:
            if self.ranks.count > 1:
                raise  # ranks are interrupted at different steps: what they have in common is the last checkpoint
            self.interrupted = True
            self.progress.say(f"interrupted at step {self.step}")
            if self.mid_step or self._non_finite():
                self._restore_snapshot()
            if self.checkpoint is not None:
                self.save()
            warmth = self.recipe.kl_weight(max(0, self.step - 1))
            sure = f"; its KL weight was only {warmth:.2f}, so it is too sure"
            cold = sure if warmth < self.recipe.temperature else ""
            text = f"interrupted: keeping the posterior of step {self.step} of {self.recipe.steps}{cold}."
            warn(text)
        if self.stopped:
            self.progress.say(f"stopped at step {self.step}: {self.stopped}")
        if self.checkpoint is not None and not self.interrupted:
            self.save()
        if self.average is not None:
            assign(self.bound, self.average)
        self.callbacks.end()

    def restart(self, rate_scale: float) -> None:
        """Forget everything but the bound's parameters as they are now, and take smaller steps."""
        self.optimiser = make_optimiser(self.bound, self.recipe, sharded=self.sharded)
        self.rng.manual_seed(self.seed + 500_009)  # no stream of a seed nearby, nor of steps taken again
        self.repeated += self.step
        self.step, self.rate_scale, self.rollbacks, self.rolled_back_at = 0, rate_scale, 0, 0
        self.history, self.windows, self.stopped, self.parameters_of = [], [], "", None
        for counter in (self.clock, self.missed, self.estimated, self.usual_norm):
            counter.zero_()
        self.failed_at.fill_(NEVER)
        self.stepper.reset()

    def _run_until_trouble(self) -> str:
        """Train to the end, or to the first sign of divergence, which is returned."""
        for batch in remaining_batches(self.data, self.seed, self.step, self.recipe.steps):
            self.mid_step = True
            terms = self._step(batch)
            self.mid_step = False
            logged = self.step % LOG_EVERY == 0 or self.step == self.recipe.steps
            if logged:
                if names := self._non_finite():
                    return f"{', '.join(names[:3])} became non-finite"
                self._log(terms)
                self._drop_unconverged_recordings(terms)
            self.callbacks.step()
            self.ctrl_c.check()
            if logged:
                self.stopped = self.ranks.any_of(self.stopped)
            asked = self.stopped and (logged or self.ranks.count == 1)
            if asked and not self._non_finite():  # else the next logged step goes back to finite parameters
                return ""
            due = self.checkpoint is not None and self.step % self.checkpoint_every == 0
            if due or self.step % SNAPSHOT_EVERY == 0:
                if names := self._non_finite():
                    return f"{', '.join(names[:3])} became non-finite"
                if self.step % SNAPSHOT_EVERY == 0:
                    if self._fell_far(WINDOW):
                        return "the bound fell far below what had been reached"
                    self.windows.append(Window.of(self.history[-WINDOW:]))
                if self._fell_far(1):
                    continue  # a spike, or the beginning of a divergence: not a state to go back to
                self._take_snapshot()
                if due:
                    self.save()
        return ""

    def _step(self, batch: Batch) -> BoundTerms:
        factor = self.recipe.rate_factor(self.step) * self.rate_scale
        for group in self.optimiser.param_groups:
            set_rate(group, factor * group["peak"])
        self.kl_weight.fill_(self.recipe.kl_weight(self.step))
        self.entropy_weight.fill_(self.recipe.entropy_weight(self.step))
        part = self._entropy_part()
        terms = self.stepper(batch, part)
        self.has_value = part == "value"
        self.step += 1
        if self._shows_products_needed(terms):
            self.products = max(report.products for report in terms.reports)
            self.converging = _converged(terms)
        return terms

    def _shows_products_needed(self, terms: BoundTerms) -> bool:
        """Whether the entropy's solver ran until it converged, which shows how many products a recording needs."""
        adaptive = self.bound.entropy is self.entropy and self.recordings < MAX_RECORDINGS
        return adaptive and self.clock.is_cuda and bool(terms.reports)

    def _entropy_part(self) -> EntropyPart:
        """What the next step needs of the entropy: its value, its gradient alone, or nothing."""
        step, last = self.step + 1, self.step + 1 == self.recipe.steps
        cheap = not isinstance(self.entropy, Valueless)
        due = step % (LOG_EVERY if cheap or not self.history else VALUE_EVERY) == 0
        if due or last:
            return "value"
        return "gradient" if self.recipe.entropy_weight(self.step) else "none"

    def _advance(self, batch: Batch, part: EntropyPart) -> BoundTerms:
        """The part of a step that runs on the device: it changes tensors in place, and reads no value back."""
        self.bound.family.prepare_step(self.bound.prior, self.rng)
        self.optimiser.zero_grad()
        weights = {"kl_weight": self.kl_weight, "entropy_weight": self.entropy_weight}
        emphasis = self.data.emphasis(batch)
        terms = self.ranks.accumulate(self.bound, batch, self.rng, entropy=part, emphasis=emphasis, **weights)
        if self.recipe.clip_factor is not None:
            clip(self.bound.parameters(), self.recipe.clip_factor, self.usual_norm)
        self.optimiser.step()
        self.clock += 1
        self._note_failures(terms)
        if terms.reports:
            self.missed += sum((~report.converged).any().float() for report in terms.reports) / len(terms.reports)
            self.estimated += 1
        if self.average is not None and self.recipe.averaging is not None:
            blend(self.average, self.bound, self.recipe.averaging)
        return terms

    def _changed(self) -> list[Tensor]:
        """Every tensor that `_advance` changes."""
        moments = [value for state in self.optimiser.state.values() for value in state.values()]
        own = [self.clock, self.missed, self.estimated, self.usual_norm, self.failed_at]
        return [*self.bound.parameters(), *moments, *own, *(self.average or {}).values()]

    def _prepare(self, part: EntropyPart) -> None:
        """Before a recording: replace the entropy estimator by its `captured` form, which reads no value back."""
        if not self.bound.family.capturable:
            raise CaptureError(f"{type(self.bound.family).__name__}, which does not say that it can be recorded")
        if not isinstance(self.entropy, Capturable):
            raise CaptureError(f"{type(self.entropy).__name__}, which waits for its own results")
        if part != "none" and self.bound.entropy is self.entropy:
            self.bound.entropy = self.entropy.captured(self.products)

    def _release(self) -> None:
        self.bound.entropy = self.entropy

    def _drop_unconverged_recordings(self, terms: BoundTerms) -> None:
        """Where a recorded entropy no longer converges, take eager steps again, which lead to a new recording.

        Not where eager steps did not converge either: a new recording would be no better.
        """
        if self.stepper.captured and self.converging and not _converged(terms):
            self.recordings += 1
            self.stepper.reset(lambda part: part != "none")  # recordings of steps without an entropy stay valid
            if self.recordings == MAX_RECORDINGS:  # from now on use as many products as are allowed
                self.products, self.converging = NEVER, False

    def _log(self, terms: BoundTerms) -> None:
        parts = torch.stack([terms.bound, terms.log_likelihood, terms.log_prior, terms.entropy])
        bound, log_likelihood, log_prior, entropy = parts.tolist()  # one wait for the device
        if not self.has_value and self.history:
            entropy = self.history[-1]["entropy"]
            bound = log_likelihood + log_prior + entropy
        row = {
            "step": float(self.step),
            "bound": bound,
            "log_likelihood": log_likelihood,
            "log_prior": log_prior,
            "entropy": entropy,
            "kl_weight": self.recipe.kl_weight(self.step - 1),
            "rate": self.recipe.rate_factor(self.step - 1) * self.rate_scale * self.optimiser.param_groups[0]["peak"],
        }
        self.history.append(row | self.callbacks.scores())

    def _non_finite(self) -> tuple[str, ...]:
        """Names of the terms that became non-finite first, at whatever step; else of parameters that are non-finite."""
        failed = self.failed_at.tolist()
        if min(failed) < NEVER:
            return tuple(name for name, step in zip(TERMS, failed, strict=True) if step == min(failed))
        named = dict(self.bound.named_parameters())
        sizes = torch.stack([norm.double() for norm in torch._foreach_norm(list(named.values()), float("inf"))])
        return tuple(name for name, size in zip(named, sizes.tolist(), strict=True) if not math.isfinite(size))

    def _note_failures(self, terms: BoundTerms) -> None:
        """Remember, without reading a result back, the step at which each term first became non-finite."""
        values = torch.stack([getattr(terms, name).detach() for name in TERMS])
        new = ~torch.isfinite(values) & (self.failed_at > self.clock)
        self.failed_at.copy_(torch.where(new, self.clock, self.failed_at))

    def _fell_far(self, count: int) -> bool:
        """Whether the last `count` logged steps lie far below earlier ones, both at the current KL weight."""
        if not self.windows:
            return False
        now, weight = Window.of(self.history[-count:]), self.recipe.kl_weight(self.step - 1)
        return now.far_below(self.windows, weight, max(20.0, 0.25 * self.bound.family.num_params))

    def _roll_back(self, trouble: str) -> None:
        self.mid_step, failed_at = True, self.step
        rollbacks, scale = self.rollbacks + 1, 0.5 * self.rate_scale
        self._restore_snapshot()
        self.rollbacks, self.rate_scale = rollbacks, scale
        self.failed_at.fill_(NEVER)
        if rollbacks > MAX_ROLLBACKS:
            raise FitError(
                f"{trouble} at step {failed_at}, after {MAX_ROLLBACKS} attempts with smaller steps, the last at "
                f"{2 * scale:g} of the learning rate. {REMEDY}."
            )
        self.progress.say(f"{trouble} at step {failed_at}: back to step {self.step} with {scale:g} of the rate")
        self.rng.manual_seed(self.seed + 1_000_003 * (rollbacks + self.step))  # the same draws would fail again
        self.rolled_back_at, self.mid_step = failed_at, False

    def state(self, optimiser: dict[str, Any] | None = None) -> dict[str, Any]:
        """Everything the next step depends on. `optimiser`: its state, by default that of all ranks together."""
        return {
            "bound": self.bound.state_dict(),
            "optimiser": whole_state(self.optimiser) if optimiser is None else optimiser,
            "rng": self.rng.get_state(),
            "step": self.step,
            "seed": self.seed,
            "rate_scale": self.rate_scale,
            "rollbacks": self.rollbacks,
            "missed": self.missed,
            "estimated": self.estimated,
            "usual_norm": self.usual_norm,
            "windows": [tuple(window) for window in self.windows],
            "rolled_back_at": self.rolled_back_at,
            "history": self.history,
            "average": self.average,
            "start_log_likelihood": self.start_log_likelihood,
            "callbacks": self.callbacks.state(),
            "stopped": self.stopped,
            "steps": self.recipe.steps,
        }

    def load(self, state: dict[str, Any], *, own: bool = False) -> None:
        """Go on from what `state` returned. `own`: the optimiser's state in it is that of this rank alone."""
        self.bound.load_state_dict(state["bound"])
        load_state(self.optimiser, state["optimiser"], own=own)
        draws = state["rng"].cpu()
        if draws.shape == self.rng.get_state().shape:
            self.rng.set_state(draws)
        else:  # written on another kind of device, whose random stream cannot be continued here
            self.rng.manual_seed(self.seed + 1_000_003 * state["step"])
        self.step, self.seed = state["step"], state["seed"]
        self.rate_scale, self.rollbacks = state["rate_scale"], state["rollbacks"]
        self.clock.fill_(self.step)
        self.missed.copy_(state["missed"])
        self.estimated.copy_(state.get("estimated", torch.tensor(float(self.step))))  # older: every step had an entropy
        self.usual_norm.copy_(state["usual_norm"])
        self.windows = [Window(*values) for values in state.get("windows", ())]  # older checkpoints have none
        self.rolled_back_at = state["rolled_back_at"]
        self.start_log_likelihood = state["start_log_likelihood"]
        self.history = list(state["history"])
        self.callbacks.load(state.get("callbacks", {}))  # older checkpoints have none
        longer = state.get("steps") != self.recipe.steps  # a fit that a callback stopped goes on if it is now longer
        self.stopped = "" if longer else state["stopped"]
        if state["average"] is not None:
            parameters = dict(self.bound.named_parameters())
            self.average = {name: value.to(parameters[name], copy=True) for name, value in state["average"].items()}
        self.stepper.reset()  # the optimiser has new tensors now

    def save(self) -> None:
        """Write a checkpoint. The first rank writes it, and the others wait for that."""
        assert self.checkpoint is not None
        state = self.state()
        if self.ranks.first:
            storage.write_checkpoint(self.checkpoint, {"facts": self.facts, "state": state})
        self.ranks.wait()

    def save_search(self, state: dict[str, Any]) -> None:
        """Write a checkpoint of a search for the start, which comes before this loop."""
        assert self.checkpoint is not None
        if self.ranks.first:
            kept = {"facts": self.facts, "state": {"start": state, "seed": self.seed}}
            storage.write_checkpoint(self.checkpoint, kept)
        self.ranks.wait()

    def _take_snapshot(self) -> None:
        """Keep a copy of this state to roll back to. Long after the last rollback, double the learning rate again."""
        if self.rollbacks and self.step - self.rolled_back_at >= FORGIVEN_AFTER:
            self.rollbacks, self.rate_scale, self.rolled_back_at = self.rollbacks - 1, 2.0 * self.rate_scale, self.step
        state = self.state(own_state(self.optimiser))
        shared = {"history": self.history[:], "callbacks": state["callbacks"]}  # their values never change in place
        self._snapshot = copied(state | dict.fromkeys(shared)) | shared

    def _restore_snapshot(self) -> None:
        shared = {name: self._snapshot[name] for name in ("history", "callbacks")}
        self.load(copied(self._snapshot | dict.fromkeys(shared)) | shared, own=True)


def _converged(terms: BoundTerms) -> bool:
    return all(bool(report.converged.all()) for report in terms.reports)
