"""Short fits of the scikit-learn estimators, and data for them."""

import numpy as np

SHORT = {"hidden": (8,), "activation": "tanh", "steps": 60, "num_samples": 32, "random_state": 0}


def wave(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)


def regions(n=90, seed=0):
    X, _ = wave(n, seed)
    return X, np.array(["left", "middle", "right"])[np.digitize(X[:, 0], [-1, 1])]
