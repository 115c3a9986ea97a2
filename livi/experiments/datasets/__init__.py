"""Published data sets: where their files come from, and readers of their formats."""
