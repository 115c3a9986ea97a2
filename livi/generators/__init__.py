"""Neural samplers g: (S, d) -> (S, m). A new generator is one file with a `Generator` subclass and a line here."""

from livi.generators.cmmnn import CMMNN, Head
from livi.generators.generator import Generator
from livi.generators.mlp import MLP, Affine
from livi.generators.mmnn import MMNN, MatrixLayer
from livi.generators.per_layer import PerLayer

__all__ = ["CMMNN", "MLP", "MMNN", "Affine", "Generator", "Head", "MatrixLayer", "PerLayer"]
