"""Models of CSV and Parquet files: columns in, predictions with uncertainty out."""

from livi.tables.content import ClassificationRows, Content, RegressionRows

__all__ = ["ClassificationRows", "Content", "RegressionRows"]
