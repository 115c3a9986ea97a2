"""Fitted posteriors: prediction, diagnostics, metrics, pooling and storage."""

from livi.posterior.posterior import Posterior, load

__all__ = ["Posterior", "load"]
