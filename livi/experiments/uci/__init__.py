"""The benchmark of the UCI regression sets: one hidden layer of 50 units, published splits, every method alike."""
