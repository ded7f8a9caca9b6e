"""The look of all figures: fonts, lines and colours for traces and experiments, and files that are reproducible.

    with style.applied():
        figure = style.Picture("page", height=2.4)
        axes = figure.subplots()
        ...
    style.save(figure, "results/fig9")          # fig9.png and fig9.svg

Colours are Okabe and Ito's, which people with any colour vision can tell apart. The meaning of a colour is written next
to it. Nothing here uses pyplot, so no figure is left open and no setting leaks into a user's notebook.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from matplotlib.transforms import offset_copy

from . import times
from .times import Floats

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, RED, YELLOW, BLACK = "#56B4E9", "#D55E00", "#F0E442", "#000000"
COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW)  # in the order in which they are assigned
OTHER = "#9A9A9A"  # for names beyond the last colour
INK, QUIET, FAINT, EMPTY = ("#1A1A1A", "#666666", "#D5D5D5", "#F1F1F1")  # text, secondary text, lines, empty areas

MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # with COLORS, so that lines differ in print too
WIDTHS = {"column": 3.4, "page": 7.0, "wide": 10.0}  # inches
HEIGHT = 2.6
Width = Literal["column", "page", "wide"] | float
DPI = 200

LABEL_POINTS = 11  # height of a row's label, with the space that it needs
SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same on every machine
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 8.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 7),
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 1.1,
    "legend.handleheight": 0.9,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.6,
    "text.color": INK,
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "seaway",  # ids in the file do not depend on the process
    "svg.fonttype": "path",  # looks the same on machines without the font
    "path.simplify": True,
}


@contextmanager
def applied() -> Iterator[None]:
    """Use our settings for figures made inside the block."""
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        yield


class Picture(Figure):
    """A figure that a notebook shows as a cell's value, and that `style.save` writes the same every time."""

    def __init__(self, width: Width = "page", height: float = HEIGHT) -> None:
        inches = WIDTHS[width] if isinstance(width, str) else width
        with applied():
            super().__init__(figsize=(inches, height), layout="constrained")
            FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        return png(self, dpi=130)


def png(figure: Figure, dpi: int = DPI) -> bytes:
    return _file(figure, format="png", dpi=dpi, metadata={"Software": None})


def _file(figure: Figure, **how: Any) -> bytes:
    buffer = io.BytesIO()
    with applied():
        figure.savefig(buffer, **how)
    return buffer.getvalue()


def drawn_on(axes: Axes | None, height: float, width: Width = "page") -> tuple[Figure, Axes]:
    """A new picture and its axes; or the axes that a user gave, and their figure."""
    if axes is not None:
        owner = figure_of(axes)
        # Titles and legends stand above the axes: a figure without a layout would draw them over others, or cut them.
        if owner.get_layout_engine() is None and all(each.get_subplotspec() for each in owner.axes):
            owner.set_layout_engine("tight")
        return owner, axes
    figure: Figure = Picture(width, height)
    return figure, figure.subplots()


def figure_of(axes: Axes) -> Figure:
    owner = axes.get_figure(root=True)
    assert owner is not None
    return owner


def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write `path`.png and `path`.svg. The same figure and matplotlib give the same bytes."""
    base = Path(path)
    if base.suffix in (".png", ".svg"):
        base = base.with_suffix("")
    base.parent.mkdir(parents=True, exist_ok=True)
    files = base.with_name(base.name + ".png"), base.with_name(base.name + ".svg")
    files[0].write_bytes(png(figure))
    files[1].write_bytes(_file(figure, format="svg", metadata={"Date": None, "Creator": None}))
    return files


# --- colours ------------------------------------------------------------------------------------------------


def colors(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, in that order; names after the last colour are grey."""
    return {name: COLORS[at] if at < len(COLORS) else OTHER for at, name in enumerate(names)}


def pale(color: str, part: float = 0.25) -> tuple[float, float, float]:
    """The colour mixed with white. `part`: the colour's part."""
    red, green, blue = to_rgb(color)
    return (1 - part * (1 - red), 1 - part * (1 - green), 1 - part * (1 - blue))


# --- pieces -------------------------------------------------------------------------------------------------


def waits(color: str = OTHER, edge: float = 0.9) -> dict[str, Any]:
    """The look of waiting for peers: pale and hatched."""
    return {"facecolor": pale(color, 0.16), "edgecolor": pale(color, edge), "linewidth": 0, "hatch": "//////"}


def waiting() -> Patch:
    """A legend entry for it."""
    return Patch(**waits(), label="waits for peers")


# Devices that a policy keeps free; where a legend above the axes is.
RESERVED: dict[str, Any] = {"facecolor": EMPTY, "edgecolor": OTHER, "hatch": "....", "linewidth": 0}
LOST: dict[str, Any] = {"facecolor": "#F3D9D9", "edgecolor": "#C0504D", "hatch": "xxx", "linewidth": 0}  # are not there
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "borderaxespad": 0.25, "borderpad": 0.2}


def asked(marker: str = "|") -> Line2D:
    """A legend entry for the line across a bar that stands for the share that was asked for. `marker`: "_" across bars
    that stand upright."""
    return Line2D(
        [], [], color=INK, marker=marker, markersize=9, markeredgewidth=1.8, linestyle="none", label="asked for"
    )


def key(axes: Axes, entries: Iterable[tuple[str, str]], extra: Iterable[Artist] = (), above: float = 0) -> None:
    """A legend of (name, colour), in rows above the axes, `above` points away."""
    rows_of_key(axes, entries, extra, above)


def rows_of_key(axes: Axes, entries: Iterable[tuple[str, str]], extra: Iterable[Artist] = (), above: float = 0) -> int:
    """Draws such a legend, and returns how many rows it has."""
    handles: list[Artist] = [Patch(facecolor=color, label=short(name)) for name, color in entries]
    handles += extra
    if not handles:
        return 0
    figure = figure_of(axes)
    # The width of the axes once they are laid out, in points.
    room = 72 * figure.get_figwidth() * axes.get_position().width / 0.775 - 70
    columns = _columns([str(handle.get_label()) for handle in handles], room)
    place = offset_copy(axes.transAxes, figure, 0, above, "points")
    axes.legend(handles=handles, ncols=columns, bbox_transform=place, **ABOVE)
    return -(-len(handles) // columns)


def title_above(axes: Axes, title: str, rows: int) -> None:
    """The axes' title, above a legend of so many rows."""
    axes.set_title(title, pad=9 + 13 * rows if rows else 6)


def _columns(labels: list[str], room: float) -> int:
    """How many columns fit. matplotlib fills columns one after the other; the first ones have one more."""
    size = SETTINGS["legend.fontsize"]
    around = size * (
        SETTINGS["legend.handlelength"] + SETTINGS["legend.handletextpad"] + SETTINGS["legend.columnspacing"]
    )
    font = FontProperties(family=SETTINGS["font.sans-serif"], size=size)
    measure = TextToPath().get_text_width_height_descent
    wide = [measure(label, font, ismath=False)[0] + around for label in labels]
    for columns in range(len(labels), 1, -1):
        if sum(float(part.max()) for part in np.array_split(wide, columns)) <= room:
            return columns
    return 1


def short(name: str, most: int = 26) -> str:
    half = most // 2
    return name if len(name) <= most else f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-(most - half - 1) :]}"


def time_axis(axes: Axes, low: int, high: int) -> int:
    """An axis of the times between these, in nanoseconds. Returns how many of these its unit has."""
    unit, scale = times.unit(int(high - low))
    axes.set_xlim(low / scale, high / scale)
    axes.set_xlabel(f"time ({unit})")
    return scale


def fill_bins(axes: Axes, at: Floats, low: Floats, high: Floats, **look: Any) -> None:
    """Fill between two values of each bin. `at`: edges of the bins."""
    look = {"linewidth": 0, **look}
    axes.fill_between(at, np.append(low, low[-1]), np.append(high, high[-1]), step="post", **look)


def percent(axes: Axes, which: Literal["x", "y"] = "y", top: float = 1.0, ticks: Sequence[float] = ()) -> None:
    """An axis of fractions from 0 on, printed as percentages."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_ylim if which == "y" else axes.set_xlim)(0, top)
    axis.set_major_locator(FixedLocator(ticks) if ticks else MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))


def label_ends(axes: Axes, labels: Sequence[tuple[float, str, str]], at: float, gap: float = 0.055) -> None:
    """Write (y, name, colour) at the right end of lines or bands, moved apart where they would touch.

    `at`: x of the right end, in data; `gap`: the least distance, as a part of the axes' height.
    """
    if not labels:
        return
    low, high = axes.get_ylim()
    least = gap * (high - low)
    order = sorted(range(len(labels)), key=lambda each: labels[each][0])
    heights = [labels[each][0] for each in order]
    for each in range(1, len(heights)):
        heights[each] = max(heights[each], heights[each - 1] + least)
    over = heights[-1] - high
    if over > 0:  # push back down from the top
        heights[-1] = high
        for each in range(len(heights) - 2, -1, -1):
            heights[each] = min(heights[each], heights[each + 1] - least)
    for each, y in zip(order, heights, strict=True):
        _, name, color = labels[each]
        axes.annotate(
            name, (at, y), xytext=(5, 0), textcoords="offset points", va="center", ha="left", fontsize=8,
            color=color, annotation_clip=False,
        )  # fmt: skip
