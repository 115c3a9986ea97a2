"""L'': the log-determinant bounded from below by its smallest singular value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from livi.draws import normal
from livi.family.entropy.estimate import EntropyEstimate, EntropyReport, Whitened, gaussian_constants, whitened
from livi.family.jacobian import RowFunction
from livi.family.linalg import EigenResult, smallest_eigenpair


@dataclass(frozen=True)
class SmallestSingularValue:
    """Equation (17): the bound L'' of equation (18), with the (m - d)/2 log sigma^2 that (18) drops.

    1/2 log det(I + A^T A) >= r/2 log(1 + s_min^2),  r = min(d, m), A = D^-1/2 J_g(z),

    with equality iff all r singular values of A are equal. Only the smallest gives a lower bound. It is found by
    matrix-free LOBPCG; its gradient holds the singular vector v fixed, d(s^2) = 2 <A v, dA v>.

    An unconverged s_min is too large and the result then no bound: read `report.converged` and `report.residual` (an
    eigenvalue of A^T A lies within residual * (1 + s^2) of s^2). Generators with clustered small singular values need
    hundreds of iterations; for the log-determinant itself `Lanczos` is both cheaper and far closer.

    Args:
        tolerance: on |A^T A v - s^2 v| / (1 + s^2).
        block_size: vectors iterated together; more of them find a clustered smallest value in fewer, dearer steps.
        memory: blocks of directions kept by the solver, see `livi.family.linalg.smallest_eigenpair`; 3 is plain LOBPCG.

    Cost: one product and one adjoint product for each block vector and iteration; O((d memory + m) block_size) memory.
    """

    tolerance: float = 1e-3
    max_iterations: int = 300
    block_size: int = 2
    memory: int = 12
    rows: range | None = field(default=None, repr=False)  # which latents these are, of those that are estimated at

    def of_rows(self, rows: range) -> SmallestSingularValue:
        """The estimator for these of `rows.stop` latents, started from the vectors that they would have among all."""
        return replace(self, rows=rows)

    def __call__(
        self,
        generator: RowFunction,
        z: Tensor,  # (S, d)
        noise_std: Tensor,  # () or (m,)
        rng: torch.Generator | None = None,
    ) -> EntropyEstimate:
        a = whitened(generator, z, noise_std)
        _, m, d = a.shape
        rows = range(len(z)) if self.rows is None else self.rows
        start = normal((rows.stop, min(d, m), min(self.block_size, d, m)), rng, z.dtype, z.device)
        start = start[rows.start :: rows.step]
        result, products = self._solve(a, start)
        if d <= m:
            left, right = a.matvec(result.vector), result.vector
            squared = left.square().sum(1)  # |A v|^2: accurate even where A^T A is not
        else:
            left, right = result.vector, a.rmatvec(result.vector)
            squared = right.square().sum(1)  # |A^T u|^2
        if torch.is_grad_enabled():
            surrogate = 2.0 * a.bilinear(left, right)
            squared = squared + surrogate - surrogate.detach()
        nats = gaussian_constants(noise_std, m) + 0.5 * min(d, m) * torch.log1p(squared.double())
        return EntropyEstimate(nats.to(z.dtype), self._report(result, products))

    def _report(self, result: EigenResult, products: int) -> EntropyReport:
        cure = f"s_min is too large after {result.iterations} iterations: raise max_iterations or use Lanczos."
        return EntropyReport(
            converged=result.converged,
            products=products,
            residual=result.residual / (1.0 + result.value.abs()),
            remedy=cure,
        )

    def _solve(self, a: Whitened, start: Tensor) -> tuple[EigenResult, int]:
        """The smallest eigenpair of A^T A or A A^T, whichever is smaller, and how many products it took."""
        (_, m, d), products = a.shape, 0

        def matvec(block: Tensor) -> Tensor:  # (S, n, k) through products on (k, S, n)
            nonlocal products
            products += 2 * block.shape[2]
            vectors = block.permute(2, 0, 1)
            return (a.gram(vectors) if d <= m else a.matvec(a.rmatvec(vectors))).permute(1, 2, 0)

        result = smallest_eigenpair(
            matvec,
            start,
            tolerance=self.tolerance,
            shift=1.0,
            max_iterations=self.max_iterations,
            memory=self.memory,
        )
        return result, products
