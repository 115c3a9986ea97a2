"""Sweeps over several axes by all pairs of values, instead of all combinations."""

from itertools import combinations, product


def every_pair(*axes):
    """Few combinations of a value of each axis, in which any two values of different axes occur together.

    Greedy: repeatedly takes the first of the combinations with the most pairs that have not occurred. The 280
    combinations of 7 x 4 x 5 x 2 become 35, the least possible for the two longest axes, 7 x 5.
    """
    rows = {row: set(combinations(enumerate(row), 2)) for row in product(*map(tuple, axes))}
    missing, chosen = set().union(*rows.values()), []
    while missing:
        chosen.append(max(rows, key=lambda row: len(rows[row] & missing)))
        missing -= rows[chosen[-1]]
    return chosen
