"""What people hold in their hands: a posterior that predicts, judges itself, and goes into a file."""

from livi.posterior.posterior import Posterior, load

__all__ = ["Posterior", "load"]
