"""Figures of posteriors and predictions, in one style."""
