"""The generator configurations of the paper's experiments, as published with its code.

Sizes are those of the configuration files at github.com/UppalAnshuk/LIVI_neurips23; parameter counts are tested.
"""

from __future__ import annotations

from livi.family.generators.cmmnn import CMMNN, Head
from livi.family.generators.mlp import MLP
from livi.family.generators.mmnn import MMNN
from livi.family.generators.sizing import Shape

# fmt: off
_CIFAR10_INPUTS: list[Shape] = [
    (25, 10), (25, 20), (50, 40), (80, 50), (80, 75), (100, 80), (120, 100), (200, 100), (200, 100), (200, 125),
    (200, 125), (200, 125), (200, 150), (200, 160), (200, 180),
]
_CIFAR10_HIDDEN: list[Shape] = [
    (50, 40), (100, 70), (100, 100), (150, 100), (200, 100), (200, 100), (200, 100), (200, 200), (200, 200), (210, 200),
    (210, 200), (225, 200), (225, 200), (250, 200), (250, 200),
]
_CIFAR10_REPEATS = [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1]
_CIFAR10_OUTPUTS: list[Shape] = [
    (150, 150), (200, 150), (240, 200), (300, 300), (400, 250), (400, 250), (400, 300), (500, 400), (500, 400),
    (500, 500), (500, 500), (500, 500), (640, 500), (700, 500), (700, 600),
]
# fmt: on


def toy() -> MLP:
    """60-105-105 with ELU for the 105 weights of the 1-7-10-1 network, trained on L'."""
    return MLP(60, 105, hidden=(105,))


def mnist_lenet() -> MMNN:
    """65x65 -> 250x250 -> 250x250 -> 350x127 for LeNet's 44,426 weights: 612,450 generator weights."""
    return MMNN((65, 65), 44_426, hidden=((250, 250), (250, 250)), output=(350, 127))


def mnist_mlp() -> MMNN:
    """40x40 -> three 420x420 -> 957x500 for the 478,410 weights of a 784-400-400-10 network."""
    return MMNN((40, 40), 478_410, hidden=((420, 420),) * 3, output=(957, 500))


def cifar10_wrn_16_4() -> CMMNN:
    """95x95 -> 250x500 -> 983x250 -> 15 sub-networks for the 2,745,274 weights of WRN-16-4 without BatchNorm affine."""
    heads = [
        Head(inputs, (hidden,) * (repeats + 1), outputs)
        for inputs, hidden, repeats, outputs in zip(
            _CIFAR10_INPUTS, _CIFAR10_HIDDEN, _CIFAR10_REPEATS, _CIFAR10_OUTPUTS, strict=True
        )
    ]
    return CMMNN((95, 95), 2_745_274, trunk=((250, 500), (983, 250)), heads=heads)
