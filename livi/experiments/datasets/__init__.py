"""Published data sets, read from files that the user has; nothing is downloaded."""
