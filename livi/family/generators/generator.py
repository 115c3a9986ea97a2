"""`Generator`, the base of all: optional skip, per-layer scale and offset, and a narrow start around given weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypedDict

import torch
from torch import Tensor, nn

from livi import checks
from livi.family.jacobian import Jacobian, LinearMap
from livi.family.moments import PROBES, moments
from livi.family.products import Chain, Dense, Gate, Linearised, Products, Sum
from livi.network.elementwise import is_plain
from livi.spec import Specified


class Extras(TypedDict, total=False):
    """Keyword arguments of `Generator` that every subclass passes on."""

    skip: bool
    offset: bool
    scale_sizes: Sequence[int] | None


class Generator(Specified, nn.Module):
    """g: (S, latent_dim) -> (S, num_params), each row by itself:

        g(z) = offset + scale * branch(z)[:, :num_params] + skip(z).

    A subclass provides the nonlinear `branch`, and `_rescale_branch`, `_shift_branch` for the initialisation. A branch
    may return more than num_params numbers (matrix shapes rarely fit); the surplus is cut here and nobody sees it. With
    a `linearised_branch` it has its Jacobian's products written out; without, they are autograd's.

    Args:
        skip: add W z with a full (num_params, latent_dim) matrix. Alone it would be a Gaussian with covariance W W^T,
            so a generator with a skip contains full-rank (latent_dim >= num_params) or low-rank Gaussian VI.
        offset: add a vector b; without it the branch's own last bias has that role.
        scale_sizes: sizes of consecutive layers in theta; each gets a learned positive factor on the branch.
    """

    def __init__(
        self,
        latent_dim: int,
        num_params: int,
        *,
        skip: bool = False,
        offset: bool = False,
        scale_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.latent_dim = checks.positive_int("latent_dim", latent_dim)
        self.num_params = checks.positive_int("num_params", num_params)
        self.skip = nn.Parameter(torch.empty(num_params, latent_dim)) if skip else None
        self.offset = nn.Parameter(torch.zeros(num_params)) if offset else None
        self.scale_sizes = None if scale_sizes is None else checks.sizes("scale_sizes", scale_sizes, num_params)
        self.log_scale = None if self.scale_sizes is None else nn.Parameter(torch.zeros(len(self.scale_sizes)))
        if self.skip is not None:
            nn.init.normal_(self.skip, std=latent_dim**-0.5)

    def branch(self, z: Tensor) -> Tensor:
        """(S, latent_dim) -> (S, at least num_params)."""
        raise NotImplementedError

    def forward(self, z: Tensor) -> Tensor:  # (S, d) -> (S, m)
        self._check_latents(z)
        return self._completed(self.branch(z), z)

    def linearised(self, z: Tensor) -> LinearMap:
        """J_g(z) as a linear map, whose products are written out if g is made of known layers, else by autograd."""
        self._check_latents(z)
        whole = self.written_out(z.detach())
        return Jacobian(self, z) if whole is None else Products(whole, (len(z), self.num_params, self.latent_dim))

    def written_out(self, z: Tensor) -> Linearised | None:
        """g at z with its Jacobian, layer by layer; None where a subclass or a layer computes otherwise."""
        branch = self.linearised_branch(z) if self._is_as_written() else None
        if branch is None:
            return None
        piece = branch.piece
        if self.log_scale is not None:
            piece = Chain((piece, Gate(self._scale())))
        if self.skip is not None:
            piece = Sum(piece, Dense(self.skip))
        return Linearised(lambda: self._completed(branch.value(), z), piece)

    def linearised_branch(self, z: Tensor) -> Linearised | None:  # noqa: ARG002 - that of a branch nobody knows
        """`branch` at z, cut to num_params outputs; None where it holds modules that are not known to be elementwise.

        Whoever overrides `branch` overrides this too, or autograd is used.
        """
        return None

    def affine_parameters(self) -> list[nn.Parameter]:
        """Offset and skip, which tolerate a larger learning rate than the other parameters."""
        return [parameter for parameter in (self.offset, self.skip) if parameter is not None]

    def nonlinear_parameters(self) -> list[nn.Parameter]:
        affine = {id(parameter) for parameter in self.affine_parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in affine]

    @torch.no_grad()
    def init_around(
        self,
        theta: Tensor,  # (m,)
        spread: float | Sequence[float],
        *,
        nonlinear_share: float = 0.4,
        rng: torch.Generator | None = None,
    ) -> Self:
        """Start around these weights, this narrow: mean theta, and standard deviation `spread` averaged over weights.

        Args:
            spread: for all weights, or one for each of `scale_sizes`.
            nonlinear_share: with a skip, the branch's standard deviation as a share of the skip's.
        """
        checks.vector("theta", theta, self.num_params)
        widths = self._widths(spread)
        if self.skip is not None:
            self._init_skip(widths, rng)
        target = widths * (nonlinear_share if self.skip is not None else 1.0)
        z = self._probe_latents(rng)
        if self.log_scale is None:
            _, deviation = self._moments(z)
            self._rescale_branch(float(target.mean() / deviation.square().mean().sqrt().clamp_min(1e-12)))
        else:  # and the branch keeps its size: the last layer's weights would else be far below a step of Adam
            self._match_layers(target, z)
        centre, _ = self._moments(z)
        self._move_to(theta.to(centre), centre)
        return self

    def _with_skip(self, jacobian: Tensor) -> Tensor:  # (S, m, d)
        """A branch's Jacobian made that of the whole generator."""
        if self.log_scale is not None:
            jacobian = jacobian * self._scale()[:, None]
        return jacobian if self.skip is None else jacobian + self.skip

    def _completed(self, branch: Tensor, z: Tensor) -> Tensor:  # (S, at least m) -> (S, m)
        theta = branch[:, : self.num_params]
        if theta.shape[1] < self.num_params:
            raise ValueError(f"branch: expected at least {self.num_params} outputs, got {theta.shape[1]}.")
        if self.log_scale is not None and self.offset is not None and self.skip is None:
            return torch.addcmul(self.offset, theta, self._scale())  # one pass over what may be millions
        if self.log_scale is not None:
            theta = theta * self._scale()
        if self.skip is not None:
            theta = theta + z @ self.skip.T
        return theta if self.offset is None else theta + self.offset

    def _is_as_written(self) -> bool:
        """Whether no subclass overrides `forward`, or `branch` without `linearised_branch`, and there are no hooks."""
        kind = type(self)
        owners = {next(base for base in kind.__mro__ if name in vars(base)) for name in ("branch", "linearised_branch")}
        return kind.forward is Generator.forward and len(owners) == 1 and is_plain(self, kind)

    def _check_latents(self, z: Tensor) -> None:
        if z.ndim != 2 or z.shape[1] != self.latent_dim:
            raise ValueError(f"z: expected shape (num_samples, {self.latent_dim}), got {tuple(z.shape)}.")

    def _rescale_branch(self, factor: float) -> None:
        """Multiply the branch's outputs by a factor."""
        raise NotImplementedError

    def _shift_branch(self, delta: Tensor) -> None:
        """Add delta (m,) to the branch's outputs."""
        raise NotImplementedError

    def _scale(self) -> Tensor:  # (m,)
        assert self.log_scale is not None
        assert self.scale_sizes is not None
        scales = zip(self.log_scale.exp(), self.scale_sizes, strict=True)
        return torch.cat([scale.expand(size) for scale, size in scales])  # repeat_interleave would wait for a GPU

    def _widths(self, spread: float | Sequence[float]) -> Tensor:  # (m,)
        like = next(self.parameters())
        if isinstance(spread, (int, float)):
            return like.new_full((self.num_params,), checks.positive_float("spread", spread))
        if self.scale_sizes is None or len(spread) != len(self.scale_sizes):
            known = "no scale_sizes" if self.scale_sizes is None else f"{len(self.scale_sizes)} layers"
            raise ValueError(f"spread: expected one number, or one per scaled layer; got {len(spread)} for {known}.")
        values = like.new_tensor([checks.positive_float("spread", value) for value in spread])
        return values.repeat_interleave(torch.tensor(self.scale_sizes, device=like.device))

    def _init_skip(self, widths: Tensor, rng: torch.Generator | None) -> None:
        """Rows of length `widths`: the identity where latents suffice, else random directions."""
        assert self.skip is not None
        if self.latent_dim >= self.num_params:
            self.skip.zero_().diagonal().copy_(widths)
            return
        rows = self._gaussian(self.num_params, rng)
        self.skip.copy_(rows / rows.norm(dim=1, keepdim=True) * widths[:, None])

    def _match_layers(self, target: Tensor, z: Tensor) -> None:
        assert self.log_scale is not None
        assert self.scale_sizes is not None
        _, deviation = self._moments(z)
        for i, (wanted, found) in enumerate(
            zip(target.split(self.scale_sizes), deviation.split(self.scale_sizes), strict=True)
        ):
            self.log_scale[i] = (wanted.mean() / found.square().mean().sqrt().clamp_min(1e-12)).log()

    def _move_to(self, theta: Tensor, centre: Tensor) -> None:
        scale = torch.ones_like(theta) if self.log_scale is None else self._scale()
        if self.offset is not None:
            self.offset.copy_(theta - scale * centre)
        else:
            self._shift_branch(theta / scale - centre)

    def _moments(self, z: Tensor) -> tuple[Tensor, Tensor]:  # (m,), (m,)
        """Mean and standard deviation of the branch's outputs over these latents."""
        return moments(lambda some: self.branch(z[some])[:, : self.num_params], len(z), self.num_params)

    def _probe_latents(self, rng: torch.Generator | None) -> Tensor:
        half = self._gaussian(PROBES // 2, rng)
        return torch.cat([half, -half])

    def _gaussian(self, rows: int, rng: torch.Generator | None) -> Tensor:
        like = next(self.parameters())
        # A fixed stream of its own: initialisation is reproducible and leaves torch's global one alone.
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        return torch.randn(rows, self.latent_dim, generator=rng, device=rng.device, dtype=like.dtype).to(like.device)
