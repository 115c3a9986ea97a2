"""The implicit posterior: theta = g(z) + sigma * eps over the weights of a module, or a mixture of K such."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import normal
from livi.family.entropy import DensityEstimate, Divisible, EntropyEstimate, EntropyEstimator, importance_log_density
from livi.family.family import Draw, Estimation, Family, Rates
from livi.family.generators import Generator
from livi.family.latents import Independent, Latents, mirrored
from livi.family.noise import FixedNoise, Noise
from livi.family.share import Share
from livi.network import Layout


class ImplicitPosterior(Family):
    """q(theta) = 1/K sum_k E_z N(theta; g_k(z), diag(sigma_k^2)), over the stochastic weights of a layout.

    Args:
        layout: which weights, in which order. Moving or converting the posterior moves its module along.
        generators: one generator, or one for each mixture component; each maps to layout.num_params.
        noises: as many noises as generators; FixedNoise(0.01) where not given.

    >>> from livi.family.generators import MLP
    >>> layout = Layout(nn.Linear(2, 1))
    >>> posterior = ImplicitPosterior(layout, MLP(4, layout.num_params, hidden=(8,)))
    >>> posterior.sample(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 3])
    """

    capturable = True
    entropy_apart = True  # the generator is evaluated anew, which costs little: without its last layer

    def __init__(
        self,
        layout: Layout,
        generators: Generator | Sequence[Generator],
        noises: Noise | Sequence[Noise] | None = None,
    ) -> None:
        super().__init__(layout)
        generators = [generators] if isinstance(generators, nn.Module) else list(generators)
        if noises is None:
            noises = [FixedNoise() for _ in generators]
        noises = [noises] if isinstance(noises, Noise) else list(noises)
        if not generators or len(generators) != len(noises):
            raise ValueError(f"expected as many noises as generators, got {len(noises)} and {len(generators)}.")
        for generator in generators:
            _check_generator(generator, layout)
        self.generators = nn.ModuleList(generators).to(layout.device, layout.dtype)
        self.noises = nn.ModuleList(noises).to(layout.device, layout.dtype)
        for noise in self._noises():
            if noise.std().shape not in ((), (layout.num_params,)):
                raise ValueError(
                    f"noise: expected a scalar or {layout.num_params} values, got {tuple(noise.std().shape)}."
                )

    @property
    def num_components(self) -> int:  # type: ignore[override]  # a constant of families that are no mixtures
        return len(self.generators)

    def only(self, components: Sequence[int]) -> ImplicitPosterior:
        """The mixture of these components, which shares their parts with this one."""
        generators, noises = self._generators(), self._noises()
        return ImplicitPosterior(self.layout, [generators[k] for k in components], [noises[k] for k in components])

    def sample(
        self, num_samples: int, rng: torch.Generator | None = None, *, latents: Latents | None = None
    ) -> Tensor:  # (S, m)
        """Weight vectors from q. Components get equal shares; a remainder goes to randomly chosen ones."""
        return self._draw(num_samples, rng, latents or Independent(), exact_shares=False).theta

    def draw(self, num_samples: int, rng: torch.Generator | None = None, *, latents: Latents | None = None) -> Draw:
        """`sample` with the latents, in exactly equal shares: num_samples must be a multiple of num_components."""
        return self._draw(num_samples, rng, latents or Independent(), exact_shares=True)

    def draw_share(
        self, share: Share, num_samples: int, rng: torch.Generator | None = None, *, latents: Latents | None = None
    ) -> Draw:
        """This rank's share of the weights, with the latents of all."""
        return self._draw(num_samples, rng, latents or Independent(), exact_shares=True, rows=share.samples)

    def centre(self) -> Tensor:  # (m,)
        """The first component's weights at z = 0: one network for a quick, deterministic answer."""
        generator = self._generators()[0]
        origin = torch.zeros(1, generator.latent_dim, dtype=self.layout.dtype, device=self.layout.device)
        with torch.no_grad():
            theta: Tensor = generator(origin)
        return theta[0]

    def entropy(self, draw: Draw, how: Estimation) -> tuple[EntropyEstimate, ...]:
        """Each component's entropy, at the first few of its latents."""
        share = how.num_samples // self.num_components
        return self.entropy_at([z[:share] for z in draw.latents], how.estimator, how.rng)

    def entropy_share(self, share: Share, draw: Draw, how: Estimation) -> tuple[tuple[EntropyEstimate, ...], float]:
        """Estimates at this rank's latents, from the common random stream if the estimator is `Divisible`."""
        rows, weight = share.latents(how.num_samples // self.num_components)
        if isinstance(how.estimator, Divisible):
            estimator, rng = how.estimator.of_rows(rows), how.rng
        else:
            estimator, rng = how.estimator, share.stream(how.rng)
        latents = [z[rows.start : rows.stop : rows.step] for z in draw.latents]
        return self.entropy_at(latents, estimator, rng), weight

    def entropy_at(
        self,
        latents: Sequence[Tensor],  # K of (S_k, d)
        estimator: EntropyEstimator,
        rng: torch.Generator | None = None,
    ) -> tuple[EntropyEstimate, ...]:
        """Each component's entropy at its latents.

        The mean over components is a lower bound on the mixture's entropy, which exceeds it by the mutual information
        between theta and the component: at most log K, and that much when the components do not overlap.
        """
        if len(latents) != self.num_components:
            raise ValueError(f"latents: expected {self.num_components} tensors, one per component, got {len(latents)}.")
        return tuple(
            estimator(generator, z, noise.std(), rng)
            for generator, noise, z in zip(self._generators(), self._noises(), latents, strict=True)
        )

    def log_prob(
        self,
        theta: Tensor,  # (S, m)
        *,
        num_importance: int = 256,
        starts: Tensor | None = None,
        rng: torch.Generator | None = None,
    ) -> DensityEstimate:
        """log q(theta) estimated by importance sampling: a diagnostic for small latent dimensions.

        See `importance_log_density` for what it misses. The search for each row's latents begins at `starts`, (S, d) or
        (R, S, d), in every component; it is most reliable if the latent that theta was drawn from is among them.
        """
        checks.matrix("theta", theta, self.num_params)
        return _of_mixture(
            [
                importance_log_density(
                    generator,
                    theta,
                    noise.std(),
                    latent_dim=generator.latent_dim,
                    starts=starts,
                    num_importance=num_importance,
                    rng=rng,
                )
                for generator, noise in zip(self._generators(), self._noises(), strict=True)
            ]
        )

    def log_prob_of(
        self, draw: Draw, *, num_importance: int = 32, rng: torch.Generator | None = None
    ) -> DensityEstimate:
        """log q of draws of `draw`, such that 1 / q is unbiased, as importance weights p / q need.

        The latent that a draw comes from is one of its importance samples (see `importance_log_density`), and the
        search for others begins at the origin of each component. Proposals are as wide as the modes, which makes the
        density of an affine generator exact.
        """
        ends = [0, *itertools.accumulate(len(z) for z in draw.latents)]
        parts = []
        for k, (generator, noise) in enumerate(zip(self._generators(), self._noises(), strict=True)):
            mine = torch.arange(ends[k], ends[k + 1], device=draw.theta.device)
            others = torch.cat([torch.arange(ends[k]), torch.arange(ends[k + 1], ends[-1])]).to(mine.device)
            found = [
                importance_log_density(
                    generator,
                    draw.theta[rows],
                    noise.std(),
                    latent_dim=generator.latent_dim,
                    num_importance=num_importance,
                    inflation=1.0,
                    own=own,
                    rng=rng,
                )
                for rows, own in ((mine, draw.latents[k]), (others, None))
                if len(rows)
            ]
            parts.append(_in_order(found, torch.cat([mine, others])))
        return _of_mixture(parts)

    def begin_around(self, rows: Tensor, spread: float, *, relative: bool = False) -> None:  # (K, m)
        """Start each generator around its row.

        A relative spread is relative to each tensor that the generator scales, or to all weights where it scales none.
        """
        for generator, noise, row in zip(self._generators(), self._noises(), rows, strict=True):
            noise.init_around(row)
            if not relative:
                generator.init_around(row, spread)
                continue
            sizes = [float(part.square().mean().sqrt()) for part in row.split(generator.scale_sizes or [len(row)])]
            spreads = [spread * max(size, 0.01) for size in sizes]
            generator.init_around(row, spreads if generator.scale_sizes else spreads[0])

    def rates(self) -> Rates:
        affine = [p for generator in self._generators() for p in generator.affine_parameters()]
        nonlinear = [p for generator in self._generators() for p in generator.nonlinear_parameters()]
        return Rates(affine, nonlinear, list(self.noises.parameters()))

    def title(self) -> str:
        return f"{self.num_components} x {type(self.generators[0]).__name__}"

    def facts(self) -> dict[str, Any]:
        generator = self._generators()[0]
        return {
            "components": self.num_components,
            "generator": type(generator).__name__,
            "latent_dim": generator.latent_dim,
            "noise": type(self.noises[0]).__name__,
        }

    def _draw(
        self,
        num_samples: int,
        rng: torch.Generator | None,
        scheme: Latents,
        *,
        exact_shares: bool,
        rows: slice | None = None,
    ) -> Draw:
        checks.rng("rng", rng)
        shares = self._shares(checks.positive_int("num_samples", num_samples), rng, exact_shares)
        dtype, device = self.layout.dtype, self.layout.device
        thetas, latents = [], []
        for share, generator, noise in zip(shares, self._generators(), self._noises(), strict=True):
            if share == 0:
                continue
            z = scheme.draw(share, generator.latent_dim, rng, dtype=dtype, device=device)

            def draw_eps(rows: int) -> Tensor:
                return normal((rows, self.num_params), rng, dtype, device)

            # A mirrored latent gets mirrored noise, so that the pair is antithetic in theta itself.
            eps = mirrored(share, draw_eps) if scheme.antithetic else draw_eps(share)
            latents.append(z)
            if rows is not None:
                z, eps = z[rows], eps[rows].clone()  # not a view, which would keep all of it
            thetas.append(torch.addcmul(generator(z), noise.std(), eps))
        return Draw(torch.cat(thetas), tuple(latents))

    def _shares(self, num_samples: int, rng: torch.Generator | None, exact: bool) -> list[int]:
        share, rest = divmod(num_samples, self.num_components)
        if exact and rest:
            raise ValueError(
                f"num_samples: expected a multiple of the {self.num_components} mixture components, got {num_samples}."
            )
        shares = [share] * self.num_components
        if rest:
            for k in torch.randperm(self.num_components, generator=rng, device=rng.device if rng else None)[:rest]:
                shares[int(k)] += 1
        return shares

    def _generators(self) -> list[Generator]:
        return [generator for generator in self.generators if isinstance(generator, Generator)]

    def _noises(self) -> list[Noise]:
        return [noise for noise in self.noises if isinstance(noise, Noise)]


def _of_mixture(parts: Sequence[DensityEstimate]) -> DensityEstimate:
    """The mixture's log density, from each component's log density of the same rows."""
    logs = torch.stack([part.log_prob for part in parts])
    shares = logs.softmax(0)
    errors = torch.stack([part.standard_error for part in parts])
    return DensityEstimate(
        log_prob=torch.logsumexp(logs, 0) - math.log(len(parts)),
        standard_error=(shares * errors).square().sum(0).sqrt(),
        effective=(shares * torch.stack([part.effective for part in parts])).sum(0),
        preimages=(shares * torch.stack([part.preimages for part in parts])).sum(0),
    )


def _in_order(parts: Sequence[DensityEstimate], rows: Tensor) -> DensityEstimate:
    """The parts joined and put in order; `rows` are the numbers of their rows, part by part."""
    order = rows.argsort()
    names = ("log_prob", "standard_error", "effective", "preimages")
    return DensityEstimate(*(torch.cat([getattr(part, name) for part in parts])[order] for name in names))


def _check_generator(generator: Generator, layout: Layout) -> None:
    if not isinstance(generator, Generator):
        raise TypeError(f"generator: expected a livi.family.generators.Generator, got {type(generator).__name__}.")
    if generator.num_params != layout.num_params:
        raise ValueError(
            f"generator: expected num_params={layout.num_params} as in the layout, got {generator.num_params}; "
            f"size it with {type(generator).__name__}.for_layout(layout)."
        )
