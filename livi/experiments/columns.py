"""Columns that several benchmarks show."""

from livi.experiments.scoreboard import Column

SECONDS = Column("seconds", "s", None, 1)
COVERAGE = Column("coverage", "in 90 %, %", None, 1, percent=True)
LOG_SCORE = Column("log_score", "log score", "higher", 3)
RMSE = Column("rmse", "RMSE", "lower")
CRPS = Column("crps", "CRPS", "lower")
NLL = Column("nll", "NLL", "lower", 3)
ECE = Column("ece", "ECE, %", "lower", 2, percent=True)
ACCURACY = Column("accuracy", "accuracy, %", "higher", 2, percent=True)
