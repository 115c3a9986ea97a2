"""Krylov methods on a callable: no modules, no theta, no noise. Results carry residuals and convergence."""

from livi.family.linalg.cg import CGResult, conjugate_gradient, fixed_conjugate_gradient
from livi.family.linalg.lobpcg import EigenResult, smallest_eigenpair
from livi.family.linalg.quadrature import Bracket, log_quadrature

__all__ = [
    "Bracket",
    "CGResult",
    "EigenResult",
    "conjugate_gradient",
    "fixed_conjugate_gradient",
    "log_quadrature",
    "smallest_eigenpair",
]
