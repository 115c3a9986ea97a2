"""`Marginal`: the likelihood of the features that enter a last layer, with that layer integrated out."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.last_layer.evidence import Conditional
from livi.model.likelihoods import Likelihood
from livi.model.priors import Normal, Relevance


class Marginal(Likelihood):
    """log p(all targets | features) with the normal prior of the last layer integrated out.

    The examples depend on each other through that layer, so a batch must be the whole data set: `log_prob` gives each
    example an equal share of the joint log density. Where the prior's scales have a density of their own, that is
    counted too.

    Args:
        scale: prior standard deviation of the last layer's weights, where `prior` is not given.
        learn_scale: learn it too.
        counts: how often each example counts; once without.
        prior: of the last layer's weights, W by rows and then b; see `check_columns`.
    """

    word = "exact"  # for what is done to the last layer
    needs_all_examples = True
    beside = False  # whether the network returns a second column, which is no output of the last layer

    def __init__(
        self, scale: float, learn_scale: bool, counts: Tensor | None, prior: Normal | Relevance | None
    ) -> None:
        super().__init__()
        self.prior = prior
        self.log_scale: Tensor | None
        start = torch.tensor(math.log(checks.positive_float("scale", scale)))
        if prior is not None:
            self.register_buffer("log_scale", None)
        elif learn_scale:
            self.log_scale = nn.Parameter(start)
        else:
            self.register_buffer("log_scale", start)
        self.counts: Tensor | None
        self.register_buffer("counts", counts)

    @property
    @abstractmethod
    def observed(self) -> Likelihood:
        """The likelihood of the network's outputs."""

    @abstractmethod
    def joint(self, outputs: Tensor, targets: Tensor) -> Tensor:  # (S, N, H), (N, ...) -> (S,)
        """The log density of all targets, or a lower bound of it; once differentiable."""

    @abstractmethod
    def conditional(self, outputs: Tensor, targets: Tensor) -> Conditional:
        """The last layer's posterior, or its approximation, in double precision and without a gradient."""

    @abstractmethod
    def draw(self, posterior: Conditional, rng: torch.Generator | None) -> Tensor:  # (S, H + 1, T)
        """Weights of the last layer, one draw for each sample of the earlier ones."""

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Equal shares of the joint log density; once differentiable."""
        if outputs.ndim != 3 or outputs.shape[1] != len(targets):
            raise ValueError(
                f"features: expected (S, {len(targets)}, H), all examples at once, got {tuple(outputs.shape)}."
            )
        joint = self.joint(outputs, targets)
        joint = joint + self.log_prob_of_scales()
        return (joint / len(targets))[:, None].expand(-1, len(targets))

    def log_prob_of_scales(self) -> Tensor | float:
        return 0.0 if self.prior is None else self.prior.log_prob_of_scales()

    def log_scales(self, width: int, outputs: int) -> Tensor:  # (H + 1,)
        """The prior's scale of each feature's weights, and of the bias, which is the same for all outputs."""
        if self.prior is None:
            assert self.log_scale is not None
            return self.log_scale.expand(width + 1)
        scale = self.prior.scale()
        if scale.ndim == 0:
            return scale.log().expand(width + 1)
        if len(scale) != outputs * (width + 1):
            raise ValueError(
                f"prior: expected scales for {outputs * (width + 1)} weights of the last layer, got {len(scale)}."
            )
        return torch.cat([scale[:width], scale[outputs * width : outputs * width + 1]]).log()


def check_columns(prior: Normal | Relevance, width: int, outputs: int) -> None:
    """Check that all outputs have the same scale for a feature, and for the bias, now and after it is learned.

    Raises:
        ValueError: they have not; the message says so.
    """
    groups = prior.groups_of(outputs * (width + 1))
    weights, biases = groups[: outputs * width].reshape(outputs, width), groups[outputs * width :]
    for part in (weights, biases[:, None]):
        scales = part if prior.learned else prior.log_scale.detach().reshape(-1)[part]
        if not bool((scales == scales[0]).all()):
            raise ValueError("the prior has other scales for one output of the last layer than for another")
