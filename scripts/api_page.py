"""Write docs/api.md: every public name with the first line of its docstring.

python scripts/api_page.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

import livi
from livi import public
from livi.rivals import METHODS

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
OPTIONAL = ("compare", "LIVIRegressor", "LIVIClassifier")  # public, but not in __all__: they need optional packages
GROUPS = {
    "Fitting": "fit plan Recipe compare fit_density EarlyStopping CSVLogger Callback FitError FitWarning CaptureError",
    "Posteriors": "Posterior load pool polish PolishReport reweight ReweightReport Density load_density StorageError",
    "Tables, with `livi[tables]`": "LIVIRegressor LIVIClassifier",
    "Likelihoods": "Gaussian HeteroscedasticGaussian ContaminatedGaussian StudentT LogNormal Poisson NegativeBinomial "
    "Categorical Bernoulli Multilabel Weighted pass_weights FunctionLikelihood",
    "Priors": "Normal Laplace Relevance FunctionPrior",
    "Generators": "MLP MMNN CMMNN Affine PerLayer",
    "Noise and latents": "FixedNoise RelativeNoise LearnedNoise LayerNoise DiagonalNoise Orthogonal Antithetic "
    "Independent",
    "Entropy and bound": "Exact Lanczos SmallestSingularValue Bound BoundTerms",
    "Networks as functions of their weights": "Layout apply_many estimate_statistics Vmap Loop CropFlip Problem",
    "Families of your own": "Family ImplicitPosterior Ensemble WeightSampler Draw exactly",
    "Modules": "metrics training",
}
HEAD = """\
# Names

What `import livi` offers, by its use, with the first line of each docstring; `help(livi.fit)` has the rest.
[options.md](options.md) lists the options of the main functions. Written by `python scripts/api_page.py`.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for title, names in GROUPS.items():
        rows = [f"| `livi.{name}` | {first_line(getattr(livi, name))} |" for name in names.split()]
        parts.append("\n".join([f"## {title}", "", "| | |", "|---|---|", *rows, ""]))
    rows = [
        f"| `livi.rivals.{method.fit.__name__}` | {method.title} | {first_line(method.fit)} |"
        for name, method in METHODS.items()
        if name != "livi"
    ]
    parts.append("\n".join(["## Rivals", "", "| | | |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def first_line(thing: object) -> str:
    """The first line of its docstring, as a cell of a table."""
    return (inspect.getdoc(thing) or "").split("\n")[0].replace("|", "\\|")


def missing() -> set[str]:
    """Public names that are in no group, and names in groups that are not public."""
    listed = {name for names in GROUPS.values() for name in names.split()}
    return listed ^ {*public.__all__, *OPTIONAL}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
