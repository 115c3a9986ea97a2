"""L' without forming the Jacobian: stochastic Lanczos quadrature for the value, a CG solve for the gradient."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from livi.draws import rademacher
from livi.family.entropy.estimate import EntropyEstimate, EntropyReport, gaussian_constants, whitened
from livi.family.jacobian import RowFunction
from livi.family.linalg import CGResult, conjugate_gradient, fixed_conjugate_gradient, log_quadrature


@dataclass(frozen=True)
class Lanczos:
    """Equation (14) with the full log-determinant estimated matrix-free: L' at millions of parameters.

    With M = I + A^T A, A = D^-1/2 J_g(z), and Rademacher probes v, E[v v^T] = I:

        value      log det M = tr log M = E[v^T log(M) v]
        gradient   d 1/2 log det M = tr(M^-1 A^T dA) = E[<A w, dA v>],  w = M^-1 v

    One conjugate gradient run for each probe serves both: it solves for w, and its coefficients are the Lanczos
    matrix whose quadrature gives v^T log(M) v. All eigenvalues of M are at least 1, so a Gauss and a Gauss-Radau rule
    bracket each quadratic form (`report.truncation` is the width; the value is the midpoint). The gradient is unbiased
    in the probe up to the CG residual in `report.residual`: a solve cut short understates the pull on small singular
    values, so watch it when the condition number is high.

    Args:
        num_probes: independent probes for each latent; two or more give a standard error.
        tolerance: relative CG residual at which a probe stops.
        check_every: how often, in iterations, to ask whether all probes have stopped. More than `max_iterations` runs
            them all and reads nothing back (for CUDA graph capture).
        value: False leaves the log-determinant's value out where gradients are recorded, and gives 0 in its place.

    Cost: one product and one adjoint product per iteration and probe, plus two and the backward pass of one for
    the gradient; O(d + m) memory for each probe.
    """

    num_probes: int = 4
    tolerance: float = 1e-2
    max_iterations: int = 100
    check_every: int = 1
    value: bool = field(default=True, repr=False)
    rows: range | None = field(default=None, repr=False)  # which latents these are, of those that are estimated at

    def without_value(self) -> Lanczos:
        """The same gradient without the quadrature, for steps that are not logged."""
        return replace(self, value=False)

    def of_rows(self, rows: range) -> Lanczos:
        """The estimator for these of `rows.stop` latents, with the probes that they would have among all."""
        return replace(self, rows=rows)

    def captured(self, products: int) -> Lanczos:
        """One and a half times as many iterations as sufficed, without checks of convergence in between."""
        iterations = min(self.max_iterations, 2 + 3 * products // 4)
        return replace(self, max_iterations=iterations, check_every=iterations + 1)

    def __call__(
        self,
        generator: RowFunction,
        z: Tensor,  # (S, d)
        noise_std: Tensor,  # () or (m,)
        rng: torch.Generator | None = None,
    ) -> EntropyEstimate:
        a = whitened(generator, z, noise_std)
        samples, m, d = a.shape
        rows = range(samples) if self.rows is None else self.rows
        probes = rademacher((self.num_probes, rows.stop, d), rng, z.dtype, z.device)[:, rows.start :: rows.step]
        recorded = torch.is_grad_enabled()
        half, standard_error, truncation = torch.zeros_like(z[:, 0]), None, None
        if recorded and not self.value and self.check_every > self.max_iterations:
            iterations = self.max_iterations
            solution, residual = fixed_conjugate_gradient(lambda v: v + a.gram(v), probes, iterations)
        else:
            solve = conjugate_gradient(
                lambda v: v + a.gram(v.to(z.dtype)).to(v.dtype),
                probes.double(),  # d numbers: large eigenvalues cost single precision its tridiagonal matrix
                tolerance=self.tolerance,
                max_iterations=self.max_iterations,
                check_every=self.check_every,
            )
            iterations, solution = solve.diagonal.shape[-1], solve.solution.to(z.dtype)
            residual = solve.residual.to(z.dtype)
            if self.value or not recorded:
                half, standard_error, truncation = self._value(solve, d, z.dtype)
        if recorded:
            surrogate = a.bilinear(a.matvec(solution), probes).mean(0)  # <A w, A v>
            half = half + surrogate - surrogate.detach()
        report = EntropyReport(
            converged=(residual <= self.tolerance).all(0),
            products=2 * iterations,
            residual=residual.amax(0),
            standard_error=standard_error,
            truncation=truncation,
            remedy=f"CG stopped at {iterations} iterations: raise max_iterations or the noise.",
        )
        return EntropyEstimate((half.double() + gaussian_constants(noise_std, m)).to(z.dtype), report)

    def _value(self, solve: CGResult, d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor]:
        """1/2 log det of each sample, the standard error of its probes, and the width of its bracket."""
        bracket = log_quadrature(solve.diagonal, solve.off_diagonal, solve.steps, floor=1.0)
        forms = d * bracket.midpoint  # (P, S): |v|^2 = d
        forms = torch.where(torch.isfinite(solve.residual), forms, float("nan"))
        error = 0.5 * (forms.std(0) / self.num_probes**0.5).to(dtype) if self.num_probes > 1 else None
        return 0.5 * forms.mean(0).to(dtype), error, 0.5 * d * bracket.width.mean(0).to(dtype)
