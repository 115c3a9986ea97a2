"""The benchmark on the UCI regression sets: one hidden layer of 50 units and published splits for every method."""
