"""Bayesian softmax and logistic regression for many sets of features at once: a lower bound of the evidence.

With F = [features, 1] and the weights of logit j ~ N(0, D^2), D = diag(scale), let q(w_j) have mean m_j and
covariance S, so that logit j of a row has mean mu_j = F m_j and variance v = F S F^T. For any a

    E log sum_j exp(x_j) <= 1/2 sum_j a_j^2 v + log sum_j exp(mu_j + (1 - 2 a_j) v / 2)

(the tilted bound: Saul, Jaakkola and Jordan 1996; for classes Knowles and Minka 2011), and with class y_i and count
w_i of row i

    bound = sum_i w_i (mu_iy - the right-hand side) - KL(q || p)  <=  log p(y | F).

The best a is softmax(mu + (1 - 2 a) v / 2), where the right-hand side has the derivatives a_j in mu_j and, summed
over the classes, sum_j a_j (1 - a_j) / 2 in v. What all logits have in common the labels say nothing about: there q
is the prior, and S is the covariance of the C - 1 contrasts between classes. So the best q has

    S^-1 = D^-2 + F^T diag(w sum_j a_j (1 - a_j) / (C - 1)) F,    D^-2 m_j = F^T w (y_j - a_j):

Laplace's approximation with one covariance for all contrasts, at probabilities that know how uncertain the logits
are. Of labels that are independent of each other each has log(1 + exp x_j) in place of the sum, and its own S_j with
a_j (1 - a_j); two classes are one such label.

Both equations are solved by a few rounds from a regression on logits of smoothed labels, each with Newton's step of
the means by conjugate gradients, for which S is the preconditioner, then a, then S. Where labels can be separated
Newton's step is far too short (every one of them adds about one to the logits), and elsewhere it may be too long: of
half of it, itself, twice and four times as much the best is taken. The value is a lower bound after every round, to
which its gradient, that with q and a held fixed, belongs by the envelope theorem as far as the equations are solved.
Matrices of the features' number, squared, are in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from livi.family.last_layer.evidence import Conditional, block_of, by_noise, by_output, cholesky

ROUNDS, MANY_ROUNDS = 5, 24  # in a training step, and in draws of the posterior
WORK = ROUNDS + 3  # cost of a training step in rounds, including the start and the line search
SHORTEST, LENGTHS = 0.5, 4  # the line search tries so many lengths of Newton's step, doubling from the shortest
SMOOTHED = 0.05  # share of a label that the start gives to the other labels
CONJUGATE = 4  # most steps of conjugate gradients in a round; the number of classes less one suffices


@dataclass(frozen=True)
class Logits:
    """S linear models of logits: features, and the labels that they explain."""

    features: Tensor  # (S, N, H)
    log_scale: Tensor  # (H + 1,): of the prior, the bias last
    labels: Tensor  # (N, T), the share of each class, or of yes
    exclusive: bool  # one of T classes; otherwise T labels, each yes or no
    counts: Tensor | None = None  # (N,): how often each row counts, once without

    @property
    def contrasts(self) -> int:
        """How many logits the labels determine: T, less the part that all classes have in common."""
        return self.labels.shape[1] - 1 if self.exclusive else self.labels.shape[1]

    def parts(self) -> Iterator[Logits]:
        """The same problem in blocks of samples."""
        samples, rows, width = self.features.shape
        columns = (width + 1) * (1 if self.exclusive else self.contrasts)
        for some in self.features.split(block_of(self.features.device, rows * columns, samples)):
            yield replace(self, features=some)

    def design(self) -> Tensor:  # (S, N, H + 1)
        """F D, whose weights have a unit prior. D is held fixed."""
        whole = torch.cat([self.features, torch.ones_like(self.features[..., :1])], -1)
        return whole * self.log_scale.detach().exp()

    def counted(self, rows: Tensor) -> Tensor:  # (S, N, .)
        return rows if self.counts is None else self.counts[:, None] * rows

    def curvature(self, tilt: Tensor) -> Tensor:  # (S, N, T) -> (S, N, K)
        """The precision that each row adds to the logits; K = 1 for classes, else T."""
        each = tilt * (1.0 - tilt)
        return each.sum(2, keepdim=True) / self.contrasts if self.exclusive else each

    def bent(self, tilt: Tensor, logits: Tensor) -> Tensor:  # (S, N, T)
        """The Hessian of the normaliser, times a change of the logits."""
        pull = tilt * logits
        return pull - tilt * (pull.sum(2, keepdim=True) if self.exclusive else pull)

    def probabilities(self, logits: Tensor) -> Tensor:  # (S, N, T)
        return logits.softmax(2) if self.exclusive else logits.sigmoid()

    def normaliser(self, logits: Tensor) -> Tensor:  # (S, N)
        return logits.logsumexp(2) if self.exclusive else F.softplus(logits).sum(2)


class _Fitted(NamedTuple):
    """q in units of the prior, and a; K = 1 for classes, else T."""

    mean: Tensor  # (S, P, T), m
    factor: Tensor  # (S, K, P, P), lower L with S^-1 = L L^T, in double precision
    tilt: Tensor  # (S, N, T), a


def log_evidence(problem: Logits, rounds: int = ROUNDS) -> Tensor:  # (S,)
    """The bound, differentiable once in features and log_scale."""
    return torch.cat([_bound(part, _fit(part, rounds)) for part in problem.parts()])


@torch.no_grad()
def conditional(problem: Logits) -> Conditional:
    """The best q of the last layer, in double precision, with its bound in place of the evidence.

    For classes it is that of the contrasts; what all classes have in common is drawn from the prior.
    """
    counts = None if problem.counts is None else problem.counts.double()
    scale = problem.log_scale.double()
    double = Logits(problem.features.double(), scale, problem.labels.double(), problem.exclusive, counts)
    parts = list(double.parts())
    fitted = [_fit(part, MANY_ROUNDS) for part in parts]
    return Conditional(
        scale.exp()[:, None] * torch.cat([each.mean for each in fitted]),
        torch.cat([each.factor for each in fitted]),
        scale.exp(),
        torch.cat([_bound(part, each) for part, each in zip(parts, fitted, strict=True)]),
    )


@torch.no_grad()
def _fit(problem: Logits, rounds: int) -> _Fitted:
    design = problem.design()
    mean, means, tilt, factor, variances = _start(problem, design)
    for _ in range(rounds):
        slope = design.mT @ problem.counted(problem.labels - tilt) - mean
        step, change = _newton(problem, design, factor, tilt, slope)
        lengths = [SHORTEST * 2.0**place for place in range(LENGTHS)]
        values = [_value(problem, mean + r * step, means + r * change, variances, tilt) for r in lengths]
        best = torch.stack(values).argmax(0).to(mean.dtype)
        length = (SHORTEST * torch.exp2(best))[:, None, None]  # a table of lengths would be copied from the CPU
        mean, means = mean + length * step, means + length * change
        tilt = _tilted(problem, means, variances, tilt)
        factor = _factor(problem, design, problem.curvature(tilt))
        variances = _variances(design, factor)
    return _Fitted(mean, factor, tilt)


def _start(problem: Logits, design: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Means of the weights and logits, a, the factor and the variances, from logits of smoothed labels.

    These are regressed on the features, each row weighted by the curvature at its label.
    """
    labels = problem.labels.expand(len(design), -1, -1)
    even = 1.0 / labels.shape[2] if problem.exclusive else 0.5
    guess = (1.0 - SMOOTHED) * labels + SMOOTHED * even
    logits = guess.log() - guess.log().mean(2, keepdim=True) if problem.exclusive else guess.logit()
    curvature = problem.curvature(guess)
    factor = _factor(problem, design, curvature)
    pull = design.mT @ problem.counted(curvature * logits)
    mean = by_output(_solved(factor, by_noise(pull.double(), factor.shape[1]))).to(design.dtype)
    means = design @ mean
    tilt = problem.probabilities(means)
    factor = _factor(problem, design, problem.curvature(tilt))
    variances = _variances(design, factor)
    return mean, means, _tilted(problem, means, variances, tilt), factor, variances


def _factor(problem: Logits, design: Tensor, curvature: Tensor) -> Tensor:  # (S, K, P, P)
    """The Cholesky factor of S^-1, the prior's precision plus that of the rows; NaN where rounding prevents it."""
    weights = problem.counted(curvature).mT[..., None]  # (S, K, N, 1)
    gram = (design.mT[:, None] @ (weights * design[:, None])).double()
    gram.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return cholesky(gram)


def _newton(
    problem: Logits, design: Tensor, factor: Tensor, tilt: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor]:  # (S, P, T), (S, N, T)
    """Newton's step of the means, and by how much it changes those of the logits."""
    step, change, left = torch.zeros_like(slope), torch.zeros_like(tilt), slope
    direction, before = torch.zeros_like(slope), torch.ones_like(slope[:, :1, :1])
    tiny = torch.finfo(slope.dtype).tiny
    for turn in range(min(CONJUGATE, problem.contrasts) if problem.exclusive else 1):
        solved = _solved(factor, by_noise(left.double(), factor.shape[1]))
        near = by_output(solved).to(left.dtype)
        now = (left * near).sum((1, 2), keepdim=True)
        direction = near if turn == 0 else near + now / before * direction
        logits = design @ direction
        pull = design.mT @ problem.counted(problem.bent(tilt, logits)) + direction
        size = now / (direction * pull).sum((1, 2), keepdim=True).clamp_min(tiny)
        step, change, left = step + size * direction, change + size * logits, left - size * pull
        before = now.clamp_min(tiny)
    return step, change


def _tilted(problem: Logits, means: Tensor, variances: Tensor, tilt: Tensor) -> Tensor:  # (S, N, T)
    """A step towards the best a, short enough for a map whose slope is between -v / 2 and 0."""
    best = problem.probabilities(means + (0.5 - tilt) * variances)
    return tilt + (best - tilt) / (1.0 + 0.25 * variances)


def _solved(factor: Tensor, right: Tensor) -> Tensor:  # (S, K, P, P), (S, K, P, R) -> (S, K, P, R)
    """(L L^T)^-1 right, without torch.cholesky_solve, for which torch 2.11 takes MAGMA: `inference/recordable.py`."""
    half = torch.linalg.solve_triangular(factor, right, upper=False)
    solved: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return solved


def _inverse(factor: Tensor) -> Tensor:  # (S, K, P, P)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    return inverse


def _variances(design: Tensor, factor: Tensor) -> Tensor:  # (S, N, K)
    return (design[:, None] @ _inverse(factor).mT.to(design.dtype)).square().sum(3).mT


def _bound(problem: Logits, fitted: _Fitted) -> Tensor:  # (S,)
    """The bound at this a and at this q, whose weights in their own units are held fixed."""
    mean, factor, tilt = fitted
    design = problem.design()
    explained = _explained(problem, design @ mean, _variances(design, factor), tilt)
    return (explained - _divergence(problem, mean, factor)).to(problem.features.dtype)


def _explained(problem: Logits, means: Tensor, variances: Tensor, tilt: Tensor) -> Tensor:  # (S,)
    """The bound of the expected log likelihood."""
    fitted = (problem.labels * means).sum(2) - 0.5 * (tilt.square() * variances).sum(2)
    rows = fitted - problem.normaliser(means + (0.5 - tilt) * variances)
    return (rows if problem.counts is None else problem.counts * rows).sum(1)


def _value(problem: Logits, mean: Tensor, means: Tensor, variances: Tensor, tilt: Tensor) -> Tensor:  # (S,)
    """The bound, without terms that do not depend on the means."""
    return _explained(problem, means, variances, tilt) - 0.5 * mean.square().sum((1, 2))


def _divergence(problem: Logits, mean: Tensor, factor: Tensor) -> Tensor:  # (S,)
    """KL(q || p), differentiable in the prior's scale."""
    same = problem.contrasts // factor.shape[1]  # contrasts with one covariance
    second = same * _inverse(factor).square().sum((1, 2)) + mean.double().square().sum(2)  # (S, P)
    wider = problem.log_scale.detach() - problem.log_scale  # 0, with a gradient
    log_det = 2.0 * same * factor.diagonal(dim1=-2, dim2=-1).log().sum((1, 2))
    excess = (second * (2.0 * wider).exp()).sum(1) - problem.contrasts * (1.0 + 2.0 * wider).sum()
    return 0.5 * (excess + log_det)
