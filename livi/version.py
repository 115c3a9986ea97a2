"""The version of livi, for whoever writes it into a file or shows it."""

__version__ = "0.1.0"  # as in pyproject.toml
