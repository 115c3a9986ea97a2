"""The evidence lower bound, and the only place that tempers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.entropy import EntropyEstimator, EntropyReport, Exact, Valueless
from livi.family.family import Draw, Estimation, Family
from livi.family.latents import Latents, Orthogonal
from livi.family.share import Share
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior
from livi.model.problem import log_likelihood, scaled_up
from livi.network import Loop, Strategy

EntropyPart: TypeAlias = Literal["value", "gradient", "none"]  # what of the entropy a step needs


@dataclass(frozen=True)
class BoundTerms:
    """The three terms of L' (15) or L'' (18), in nats for the whole data set, each a differentiable scalar.

    `log_likelihood` is the batch's, `scaled_up`, so the terms add up to the bound on log p(D) whatever the batch size.
    """

    log_likelihood: Tensor  # E_q log p(D | theta)
    log_prior: Tensor  # E_q log p(theta)
    entropy: Tensor  # H[q]
    reports: tuple[EntropyReport, ...] = ()

    @property
    def bound(self) -> Tensor:
        """log_likelihood + log_prior + entropy."""
        return self.log_likelihood + self.log_prior + self.entropy

    def tempered(self, kl_weight: float | Tensor = 1.0, entropy_weight: float | Tensor = 1.0) -> Tensor:
        """log_likelihood - kl_weight KL(q || p): what to maximise during a warm-up, or for a cold posterior (< 1).

        Args:
            entropy_weight: k, where the entropy is part of every k-th step only.
        """
        return self.log_likelihood + kl_weight * (self.log_prior + entropy_weight * self.entropy)

    def non_finite(self) -> tuple[str, ...]:
        """Names of the terms that are NaN or infinite."""
        names = ("log_likelihood", "log_prior", "entropy")
        return tuple(name for name in names if not bool(torch.isfinite(getattr(self, name))))


class Bound(nn.Module):
    """L(gamma) = E_q[log p(D | theta) + log p(theta)] + H[q], estimated on a batch.

    Its parameters are all that is learned: the generators' and noises', the likelihood's (observation noise) and the
    prior's (scale), so `torch.optim.Adam(bound.parameters())` is a complete type-II fit.

    Args:
        family: q, an `ImplicitPosterior` or another `Family`.
        num_data: N, the number of examples in the whole data set.
        entropy: Exact() for L', SmallestSingularValue() for L'', Lanczos() for L' at scale.
        num_samples: weight vectors for likelihood and prior, shared equally by mixture components.
        num_entropy_samples: latents, of those, for the entropy: its variance over z is small and its cost high.
        latents: how to draw z.
        batch_statistics: BatchNorm by the batch's own statistics (fitting); False uses the module's buffers.
        strategy: how to evaluate many weight vectors; see `livi.network.apply_many`.
        autocast: run the network in this dtype (torch.bfloat16) by torch.autocast; likelihood, prior and the entropy
            with its log-determinant stay in the module's own.
    """

    def __init__(
        self,
        family: Family,
        likelihood: Likelihood,
        prior: Prior,
        *,
        num_data: int,
        entropy: EntropyEstimator | None = None,
        num_samples: int = 8,
        num_entropy_samples: int | None = None,
        latents: Latents | None = None,
        batch_statistics: bool = True,
        strategy: Strategy | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, part, kind in (("likelihood", likelihood, Likelihood), ("prior", prior, Prior)):
            if not isinstance(part, kind):
                raise TypeError(f"{name}: expected a livi {name}, got {type(part).__name__}.")
        components = family.num_components
        self.num_data = checks.positive_int("num_data", num_data)
        self.num_samples = checks.positive_int("num_samples", num_samples)
        wanted = min(num_samples, 4 * components) if num_entropy_samples is None else num_entropy_samples
        self.num_entropy_samples = checks.positive_int("num_entropy_samples", wanted)
        if num_samples % components or wanted % components or wanted > num_samples:
            raise ValueError(
                f"expected multiples of the {components} mixture components with num_entropy_samples <= num_samples, "
                f"got num_samples={num_samples}, num_entropy_samples={wanted}."
            )
        self.family = family
        self.likelihood = likelihood.to(family.layout.device, family.layout.dtype)
        self.prior = prior.to(family.layout.device, family.layout.dtype)
        self.entropy = Exact() if entropy is None else entropy
        self.latents = Orthogonal() if latents is None else latents
        self.batch_statistics = batch_statistics
        self.strategy = strategy
        self.autocast = autocast

    def forward(
        self,
        inputs: Any,
        targets: Tensor,
        rng: torch.Generator | None = None,
        *,
        entropy: EntropyPart = "value",
    ) -> BoundTerms:
        """The bound's terms from B examples.

        Args:
            inputs: the module's input; a tuple is passed as positional, a dict as keyword arguments.
            targets: (B, ...).
            entropy: "gradient" leaves out the entropy's value, if the estimator can, and "none" all of the entropy;
                that term is then 0, and the sum of the terms is no bound.
        """
        draw = self._draw(rng)
        nats, reports = self._entropy(draw, rng, entropy)
        return BoundTerms(
            log_likelihood=scaled_up(self.log_likelihood(draw.theta, inputs, targets).mean(), self.num_data),
            log_prior=self.prior.log_prob(draw.theta).mean(),
            entropy=nats,
            reports=reports,
        )

    def accumulate(
        self,
        inputs: Any,
        targets: Tensor,
        rng: torch.Generator | None = None,
        *,
        entropy: EntropyPart = "value",
        kl_weight: float | Tensor = 1.0,
        entropy_weight: float | Tensor = 1.0,
        share: Share | None = None,
        weight: float = 1.0,
        emphasis: float = 1.0,
    ) -> BoundTerms:
        """The terms, without their graph; the gradient of -emphasis tempered(...) / num_data is added to every `grad`.

        The same as `forward` and a backward pass, in less memory: the entropy's graph is freed before the network runs,
        where the family allows that, and each weight vector's graph before the next one's under `Loop`.

        Args:
            share: compute one rank's share, from its own examples. Terms and gradients of all ranks add up to the
                whole, if `rng` is in the same state on every rank, which it then is afterwards too.
            weight: the factor by which the examples of a share count; see `livi.model.data.parts`.
            emphasis: the factor of the gradient alone, by which batches of different sizes count; see
                `livi.model.data.Data`.
        """
        draw = self._draw(rng, share)
        scale = -emphasis / self.num_data
        nats, reports = self._entropy(draw, rng, entropy, share)
        if self.family.entropy_apart and nats.requires_grad:
            nothing = torch.zeros_like(nats)
            torch.autograd.backward(scale * BoundTerms(nothing, nothing, nats).tempered(kl_weight, entropy_weight))
            nats = nats.detach()
        examples = self.num_data * weight / (1 if share is None else share.groups)
        if isinstance(self.strategy, Loop):
            log_likelihood, slopes = self._one_by_one(draw.theta, inputs, targets, examples, scale)
        else:
            log_likelihood = scaled_up(self.log_likelihood(draw.theta, inputs, targets).mean(), examples)
            slopes = None
        log_prior = self.prior.log_prob(draw.theta).mean()
        log_prior = log_prior if share is None else log_prior / share.ranks
        loss = scale * BoundTerms(log_likelihood, log_prior, nats).tempered(kl_weight, entropy_weight)
        if slopes is None:
            torch.autograd.backward(loss)
        elif not loss.requires_grad:  # the entropy's gradient is taken already, and the prior is flat
            torch.autograd.backward(draw.theta, slopes)
        else:
            torch.autograd.backward([loss, draw.theta], [torch.ones_like(loss), slopes])
        return BoundTerms(log_likelihood.detach(), log_prior.detach(), nats.detach(), reports)

    def _one_by_one(
        self, theta: Tensor, inputs: Any, targets: Tensor, examples: float, scale: float
    ) -> tuple[Tensor, Tensor]:  # (), (S, m)
        """The scaled log likelihood, averaged over weight vectors, and the loss's gradient with respect to each.

        The gradients of the likelihood's own parameters are accumulated on the way.
        """
        total, slopes = theta.new_zeros(()), []
        for row in theta.detach():
            leaf = row[None].requires_grad_()
            value = scaled_up(self.log_likelihood(leaf, inputs, targets).mean(), examples) / len(theta)
            torch.autograd.backward(scale * value)
            total = total + value.detach()
            slopes.append(leaf.grad)
        return total, torch.cat(slopes)

    def _draw(self, rng: torch.Generator | None, share: Share | None = None) -> Draw:
        if share is None:
            return self.family.draw(self.num_samples, rng, latents=self.latents)
        return self.family.draw_share(share, self.num_samples, rng, latents=self.latents)

    def _entropy(
        self, draw: Draw, rng: torch.Generator | None, part: EntropyPart, share: Share | None = None
    ) -> tuple[Tensor, tuple[EntropyReport, ...]]:
        """H[q], or a rank's share of it."""
        if part == "none":
            return draw.theta.new_zeros(()), ()
        estimator = self.entropy
        if part == "gradient" and isinstance(estimator, Valueless):
            estimator = estimator.without_value()
        how = Estimation(estimator, self.num_entropy_samples, rng, self.prior)
        if share is None:
            estimates, weight = self.family.entropy(draw, how), None
        else:
            estimates, weight = self.family.entropy_share(share, draw, how)
        nats = torch.stack([estimate.nats for estimate in estimates]).mean()
        return nats if weight is None else weight * nats, tuple(estimate.report for estimate in estimates)

    def log_likelihood(self, theta: Tensor, inputs: Any, targets: Tensor) -> Tensor:  # (S, m) -> (S, B)
        """log p(y | x, theta) of each example, not scaled."""
        return log_likelihood(
            self.family.layout,
            self.likelihood,
            theta,
            (inputs, targets),
            strategy=self.strategy,
            batch_statistics=self.batch_statistics,
            autocast=self.autocast,
        )
