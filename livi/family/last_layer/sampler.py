"""The posterior of a network whose last layer is integrated out, as weights of the whole network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer.evidence import Conditional
from livi.family.last_layer.marginal import Marginal
from livi.family.last_layer.network import earlier_layout
from livi.family.noise import Noise
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior
from livi.model.problem import Problem
from livi.network import Layout, apply_many, as_call
from livi.spec import Specified

_BLOCK = 4_000_000  # numbers in the features held at a time


class ExactLastLayer(Specified, nn.Module):
    """q(earlier) p(last | earlier, D): an implicit posterior of all but the last layer, and that layer's given them.

    Exact under Gaussian noise; of labels the best Gaussian, see `livi.family.last_layer.logits`.

    Args:
        layout: of the whole network; all weights of the last layer are among its stochastic ones.
        last: the dotted name of the last layer, an nn.Linear whose output is the network's.
        generators, noises: of the implicit posterior over the earlier weights.
        likelihood: of the features, with the observation noise and the last layer's prior.
        prior: of the earlier weights.
        inputs: of the whole data set, as the network takes them: a tensor, or a tuple or dict of several.
        targets: likewise.
    """

    def __init__(
        self,
        layout: Layout,
        last: str,
        generators: Generator | Sequence[Generator],
        noises: Noise | Sequence[Noise],
        likelihood: Marginal,
        prior: Prior,
        inputs: Any,
        targets: Tensor,
    ) -> None:
        super().__init__()
        self.layout, self.last = layout, last
        self.earlier = ImplicitPosterior(earlier_layout(layout, last, beside=likelihood.beside), generators, noises)
        self.likelihood, self.prior = likelihood, prior
        leaves, structure = pytree.tree_flatten(inputs)
        # One tensor is called "inputs", as in files from before there could be several.
        names = ["inputs"] if isinstance(inputs, Tensor) else [f"inputs_{i}" for i in range(len(leaves))]
        for name, leaf in zip(names, leaves, strict=True):
            self.register_buffer(name, leaf)
        self._names = pytree.tree_unflatten(names, structure)
        self.targets: Tensor
        self.register_buffer("targets", targets)

    @classmethod
    def of(cls, problem: Problem, earlier: ImplicitPosterior, likelihood: Likelihood, prior: Prior) -> ExactLastLayer:
        """The posterior of the whole network, from that of the earlier weights and its likelihood and prior."""
        integrated = problem.integrated
        assert integrated is not None
        assert isinstance(likelihood, Marginal)
        inputs, targets = pytree.tree_map(torch.clone, problem.data.first())  # which may be the user's own tensors
        generators: Any = list(earlier.generators)
        noises: Any = list(earlier.noises)
        return cls(integrated.layout, integrated.name, generators, noises, likelihood, prior, inputs, targets)

    @property
    def num_components(self) -> int:
        """The number of components of the posterior of the earlier weights."""
        return self.earlier.num_components

    def all_inputs(self) -> Any:
        """The inputs of the whole data set, as the network takes them."""
        return pytree.tree_map(self.get_buffer, self._names)

    @torch.no_grad()
    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """All weights: the earlier ones from the implicit posterior, then the last layer's given them."""
        return self.completed(self.earlier.sample(num_samples, rng), rng)

    @torch.no_grad()
    def completed(self, earlier: Tensor, rng: torch.Generator | None = None) -> Tensor:  # (S, m') -> (S, m)
        """All weights: the given earlier ones, each with a draw of the last layer given them."""
        return self._joined(earlier, lambda conditional: self.likelihood.draw(conditional, rng))

    @torch.no_grad()
    def centre(self) -> Tensor:  # (m,)
        """The earlier weights' centre with the mean of the last layer given them."""
        return self._joined(self.earlier.centre()[None], lambda conditional: conditional.mean)[0]

    def title(self) -> str:
        article = "an" if self.likelihood.word == "exact" else "a"
        return f"{self.earlier.title()} and {article} {self.likelihood.word} last layer"

    def _joined(self, earlier: Tensor, last_of: Callable[[Conditional], Tensor]) -> Tensor:  # (S, m)
        parts = []
        layer = self.layout.module.get_submodule(self.last)
        assert isinstance(layer, nn.Linear)
        args, kwargs = as_call(self.all_inputs())
        for rows in earlier.split(max(1, _BLOCK // (len(self.targets) * (layer.in_features + 1)))):
            features = apply_many(self.earlier.layout, rows, *args, **kwargs)
            last = last_of(self.likelihood.conditional(features, self.targets)).to(rows.dtype)  # (s, H + 1, T)
            weights = {f"{self.last}.weight": last[:, :-1].mT.flatten(1), f"{self.last}.bias": last[:, -1]}
            weights |= {slot.name: rows[:, slot.start : slot.stop] for slot in self.earlier.layout.slots}
            parts.append(torch.cat([weights[slot.name] for slot in self.layout.slots], 1))
        return torch.cat(parts)
