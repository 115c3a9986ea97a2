"""Experiments with a known or recorded answer, each reproducible by one command."""
