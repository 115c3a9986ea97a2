"""`livi.compare`: several methods on one's own problem, with equal budgets, in one table and one figure."""

from livi.comparison.comparing import DEFAULT_METHODS, compare
from livi.comparison.result import Comparison

__all__ = ["DEFAULT_METHODS", "Comparison", "compare"]
