"""Sweeps over several axes whose values do not all interact: every pair instead of every combination."""

from itertools import combinations, product


def every_pair(*axes):
    """Rows with a value of each axis, few of them, in which every two values of any two axes meet.

    Greedy: of all combinations, always the first of those that bring most pairs that have not met. 7 x 4 x 5 x 2 = 280
    combinations become 35 rows; the two longest axes, 7 x 5, allow no fewer.
    """
    rows = {row: set(combinations(enumerate(row), 2)) for row in product(*map(tuple, axes))}
    apart, chosen = set().union(*rows.values()), []
    while apart:
        chosen.append(max(rows, key=lambda row: len(rows[row] & apart)))
        apart -= rows[chosen[-1]]
    return chosen
