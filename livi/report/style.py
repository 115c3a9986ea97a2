"""Sizes, fonts and colours of all figures. matplotlib is loaded only when a figure is drawn."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = npt.NDArray[np.float64]

TEXT_WIDTH = 5.5
"""Inches: one column of a paper that has one column."""

INK, FAINT, PAPER = "#222222", "#9a9a9a", "#ffffff"

# Okabe and Ito's colours, which stay apart under every common colour blindness; their yellow is too light for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
COLOURS = 40 * PALETTE  # for more curves than anyone should draw


def plainly(name: str) -> str:
    r"""A name of the user's as matplotlib shows it: dollars are no mathematics, and a leading underscore hides nothing.

    >>> plainly("lr $3")
    'lr \\$3'
    """
    text = name.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


_STYLE: Any = {
    "font.family": "STIXGeneral",  # comes with matplotlib, and sits well beside Times
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.solid_capstyle": "round",
    "patch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "figure.dpi": 200.0,
    "figure.facecolor": PAPER,
    "savefig.dpi": 300.0,
    "pdf.fonttype": 42,  # fonts that journals accept and editors can edit
    "ps.fonttype": 42,
    "svg.fonttype": "none",
}


def tint(colour: str, strength: float) -> str:
    """A colour mixed with white: opaque, so that areas look the same in a figure and in its legend."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 + strength * (part - 255)):02x}" for part in parts)


def require_matplotlib() -> None:
    """Check that matplotlib is installed, before long work whose result is to be drawn.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'figures: expected matplotlib, got no such package; install it with `pip install "livi[plots]"`.'
        ) from error


@contextmanager
def style() -> Iterator[None]:
    """A context with matplotlib's settings for these figures.

    Raises:
        ImportError: matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches that pyplot does not know of, so that it need not be closed."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the style it was drawn in; the suffix (.pdf, .svg, .png) chooses the format.

    A missing folder is made, since the results may have taken hours.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with style():
        figure.savefig(path)


def png_of(figure: Figure, dpi: int) -> bytes:
    """The figure as a PNG file, the same bytes every time."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
    return file.getvalue()


def shared_legend(figure: Figure, ax: Axes, columns: int) -> None:
    """One legend for all panels, above them; none for a single unnamed curve."""
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper center", ncols=columns)


def figure_of(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def flat(name: str, values: Tensor) -> Numbers:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(values).__name__}.")
    if values.numel() == 0 or values.ndim > 2 or (values.ndim == 2 and values.shape[1] != 1):
        raise ValueError(f"{name}: expected shape (B,) or (B, 1), got {tuple(values.shape)}.")
    return as_numpy(values.reshape(-1))


def as_numpy(values: Tensor) -> Numbers:
    array: Numbers = values.detach().to("cpu", torch.float64).numpy()
    return array
