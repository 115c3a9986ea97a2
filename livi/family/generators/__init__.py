"""Neural samplers g: (S, d) -> (S, m). A new generator is one file with a `Generator` subclass and a line here."""

from livi.family.generators.cmmnn import CMMNN, Head
from livi.family.generators.generator import Generator
from livi.family.generators.matrices import MatrixLayer
from livi.family.generators.mlp import MLP, Affine
from livi.family.generators.mmnn import MMNN
from livi.family.generators.per_layer import PerLayer

__all__ = ["CMMNN", "MLP", "MMNN", "Affine", "Generator", "Head", "MatrixLayer", "PerLayer"]
