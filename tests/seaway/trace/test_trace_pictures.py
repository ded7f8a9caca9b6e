"""Pictures of a trace show what happened, say what they leave out, and are the same each time."""

import subprocess
import sys
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import seaway as sw
from seaway.trace import Trace, style
from seaway.trace.busy import By as BusyBy
from tests.seaway.small_sessions import small

from . import traces


def area(axes: Axes, color: str) -> float:
    """The area of all boxes of a colour, in rows x ms."""
    total = 0.0
    for boxes in axes.collections:
        if isinstance(boxes, PolyCollection) and to_hex(np.asarray(boxes.get_facecolor())[0]).upper() == color.upper():
            for path in boxes.get_paths():
                corners = np.asarray(path.vertices)[:4]
                total += float(np.ptp(corners[:, 0]) * np.ptp(corners[:, 1]))
    return total


def key(figure: Figure) -> list[str]:
    return [
        text.get_text()
        for axes in figure.axes
        if (legend := axes.get_legend()) is not None
        for text in legend.get_texts()
    ]


# --- the timeline -----------------------------------------------------------------------------------------


def test_bars_are_as_long_as_the_gangs() -> None:
    trace = Trace(traces.shared(gangs=60))
    (axes,) = trace.plot(window=(0, None)).axes
    gangs = trace.gangs()
    rows = 24
    for name, color in zip(("ann", "bob", "cat", "dan"), style.COLORS, strict=False):
        busy = gangs[gangs["client"] == name]["duration_us"].sum() / 1_000
        height = 2 * 0.41
        assert area(axes, color) == pytest.approx(busy * rows * height), name
        pale = to_hex(style.pale(color, 0.16))
        waits = trace.intervals(devices=trace.sample(rows))
        waited = waits[waits["client"] == name]["skew_us"].sum() / 1_000
        assert area(axes, pale) == pytest.approx(waited * height * 0.86), name


def test_the_axis_says_which_devices_of_how_many_are_drawn() -> None:
    trace = Trace(traces.shared(gangs=10, hosts=64))
    axes = trace.plot(rows=8).axes[0]
    assert axes.get_ylabel() == "device\n(8 of 256, evenly spread)"
    assert [text.get_text() for text in axes.get_yticklabels()] == [str(32 * row) for row in range(8)]
    axes = trace.plot(devices=[3, 200]).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["3", "200"]
    with pytest.raises(ValueError, match="256 rows cannot be told apart"):
        trace.plot(devices=range(256))


def test_a_long_trace_is_shown_in_part_below_a_strip_of_the_whole() -> None:
    trace = Trace(traces.shared(gangs=500))
    strip, axes = trace.plot().axes
    low, high = axes.get_xlim()
    assert len(trace.gangs((f"{int(low * 1e6) + 1}ns", f"{int(high * 1e6) - 1}ns"))) == pytest.approx(50, abs=1)
    assert strip.get_xlim()[1] * 1e6 == pytest.approx(trace.span[1])
    assert trace.plot(window=("1ms", "3ms")).axes[1].get_xlim() == (1, 3)
    assert "2 ms of" in trace.plot(window=("1ms", "3ms")).get_suptitle()


def test_details_too_fine_for_bars_are_shown_in_bins() -> None:
    trace = Trace(traces.shared(gangs=900))
    (axes,) = trace.plot(window=trace.span).axes
    assert "divided among its users" in axes.get_xlabel()
    share = trace.clients(window=trace.span)["got_share"].to_numpy()
    assert key(axes.get_figure(root=True)) == [  # type: ignore[arg-type]
        f"{name} {part:.1%}" for name, part in zip(("ann", "bob", "cat", "dan"), share, strict=True)
    ]


def test_with_one_client_the_kinds_of_steps_have_colours() -> None:
    core, cluster = traces.pipeline()
    figure = Trace(core, cluster).plot()
    assert key(figure) == ["forward 33.3%", "backward 66.7%", "waits for inputs"]
    assert {text.get_text() for text in figure.axes[0].texts} == {"c0", "c1", "c2", "c3"}
    by_hand = Trace(core, cluster).plot(color=lambda client, program, step: step.split()[-1])
    assert [name.split()[0] for name in key(by_hand)][:4] == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match="'step' or f"):
        Trace(core, cluster).plot(color="weight")  # type: ignore[arg-type]


def test_clients_beyond_the_colours_are_grey_and_counted() -> None:
    weights = {f"client {number}": 1 + (number < 7) * 5 for number in range(20)}
    names = key(Trace(traces.shared(weights, gangs=100)).plot())
    assert [name.rsplit(" ", 1)[0] for name in names[:7]] == [f"client {number}" for number in range(7)]
    assert names[7].startswith("13 others ")


# --- charts -----------------------------------------------------------------------------------------------


def test_bands_are_labelled_with_their_client_and_its_share() -> None:
    trace = Trace(traces.shared(gangs=150))
    (axes,) = trace.plot_utilization().axes
    share = trace.clients(window=trace.span)["got_share"]
    assert [text.get_text() for text in axes.texts] == [
        f"{name}  {part:.1%}" for name, part in zip(("ann", "bob", "cat", "dan"), share, strict=True)
    ]
    heights = [text.xyann[1] + text.xy[1] for text in axes.texts]  # type: ignore[attr-defined]
    assert heights == sorted(heights)
    assert f"{trace.utilization('total')['busy_fraction'].iloc[0]:.1%} busy" in axes.get_title(loc="left")


@pytest.mark.parametrize("by", ["client", "host", "total"])
@pytest.mark.parametrize("clients", [2, 7])
def test_in_axes_of_a_plain_figure_title_and_legend_touch_nothing(by: BusyBy, clients: int) -> None:
    """Neither each other, nor the figure's edge, nor the axes above, also where a legend needs several rows."""
    figure = Figure(figsize=(5, 5))
    panels = figure.subplots(2, 1)
    trace = Trace(traces.shared({f"client number {n}": 1 for n in range(clients)}))
    for axes in panels:
        trace.plot_utilization(by, axes=axes)
    style.png(figure)
    for axes in panels:
        legend, title = axes.get_legend().get_window_extent(), axes._left_title.get_window_extent()
        assert legend.y0 >= axes.get_window_extent().y1 - 1
        assert title.y0 >= legend.y1 - 4  # the legend's own padding
        assert title.y1 <= figure.bbox.y1
        assert axes.xaxis.label.get_window_extent().y0 >= figure.bbox.y0
    assert panels[1]._left_title.get_window_extent().y1 <= panels[0].xaxis.label.get_window_extent().y0


def test_all_devices_have_a_scale_and_given_axes_reach_to_all_of_them() -> None:
    """Little is busy here: a figure of its own shows that larger; axes of a user may have other lines."""
    step = sw.synthetic("step", devices=2, duration="1ms")
    with small(hosts=8, devices_per_host=8) as session:
        step(np.float32(0))
    trace = session.trace
    own = trace.plot_utilization().axes[0]
    given = Figure().subplots()
    trace.plot_utilization(axes=given)
    total = trace.plot_utilization("total").axes[0]
    assert own.get_ylim()[1] < 0.1
    assert given.get_ylim() == (0, 1)
    assert [label.get_text() for label in total.get_yticklabels()] == ["0%", "25%", "50%", "75%", "100%"]
    assert total.get_ylabel() == "all devices"


def test_in_a_subplot_nothing_is_written_outside_its_axes() -> None:
    """The next subplot is there. Clients' names stand above, and rows' labels do not touch each other."""
    figure = style.Picture("page", height=5.0)
    panels = figure.subplots(2, 2)
    trace = Trace(traces.shared())
    trace.plot_utilization(axes=panels[0, 0])
    trace.plot_utilization(by="host", axes=panels[0, 1])
    trace.plot_utilization(by="total", axes=panels[1, 0])
    trace.plot_shares(bins=4, axes=panels[1, 1])
    style.png(figure)
    for axes in (panels[0, 0], panels[1, 1]):
        assert [text for text in axes.texts if text.xyann == (5, 0)] == []
        assert axes.get_legend() is not None
    assert [label.get_text() for label in panels[1, 0].get_yticklabels()] == ["0%", "25%", "50%", "75%", "100%"]
    for axes in panels.flat:
        boxes = [label.get_window_extent() for label in axes.get_yticklabels() if label.get_text()]
        assert boxes, "an axis without labels"
        boxes.sort(key=lambda box: box.y0)
        assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))


def test_islands_have_a_row_each_and_many_hosts_are_shown_by_their_spread() -> None:
    core, cluster = traces.pipeline()
    (axes,) = Trace(core, cluster).plot_utilization("island").axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["c0", "c1", "c2", "c3"]
    assert key(axes.get_figure(root=True)) == ["busy", "waits for peers", "waits for inputs", "idle"]  # type: ignore[arg-type]
    figure = Trace(traces.shared(gangs=30, hosts=40)).plot_utilization("host")
    assert key(figure) == ["median", "middle half", "all 40 hosts"]


def test_the_picture_of_shares_shows_actual_and_requested_ones() -> None:
    trace = Trace(traces.shared(gangs=150))
    (axes,) = trace.plot_shares(window=trace.span).axes
    table = trace.clients(window=trace.span)
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(table["got_share"].tolist())  # type: ignore[attr-defined]
    (asked,) = axes.collections
    assert [np.asarray(path.vertices)[0, 0] for path in asked.get_paths()] == pytest.approx(
        table["asked_share"].tolist()
    )
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ann  (1)", "bob  (2)", "cat  (4)", "dan  (8)"]


def test_pictures_can_be_drawn_on_given_axes() -> None:
    figure = style.Picture("wide", 6)
    top, middle, low = figure.subplots(3)
    trace = Trace(traces.shared(gangs=30))
    assert trace.plot(rows=4, axes=top, title="mine") is figure
    assert trace.plot_utilization(axes=middle) is figure
    assert trace.plot_shares(axes=low) is figure
    assert top.get_title(loc="left") == "mine"


# --- files and style --------------------------------------------------------------------------------------

SCRIPT = """
import sys
from seaway.trace import Trace, style
from tests.seaway.trace import traces
style.save(Trace(traces.shared(gangs=12)).plot(rows=4), sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
"""


def test_files_are_the_same_in_every_process(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "one")], check=True, cwd=root)
    style.save(Trace(traces.shared(gangs=12)).plot(rows=4), tmp_path / "two")
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg
    ElementTree.fromstring(svg)


def test_save_takes_a_name_with_or_without_its_suffix(tmp_path: Path) -> None:
    figure = Trace(traces.shared(gangs=3)).plot_shares()
    names = [path.name for path in style.save(figure, tmp_path / "deep" / "fig9.png")]
    assert names == ["fig9.png", "fig9.svg"]
    assert style.save(figure, tmp_path / "2.5ms")[1].name == "2.5ms.svg"


def test_a_notebook_shows_a_picture_and_global_settings_stay_unchanged() -> None:
    before = dict(mpl.rcParams)
    picture = Trace(traces.shared(gangs=3)).plot_shares()
    assert isinstance(picture, style.Picture)
    shown = image.imread(BytesIO(picture._repr_png_()), format="png")
    assert shown.shape[1] == round(4.6 * 130)
    assert dict(mpl.rcParams) == before


def test_labels_that_would_touch_are_moved_apart() -> None:
    axes = style.Picture("column", 2).subplots()
    axes.set_ylim(0, 1)
    style.label_ends(axes, [(0.5, "b", "k"), (0.49, "a", "k"), (0.99, "d", "k"), (1.0, "e", "k")], at=1, gap=0.1)
    heights = {text.get_text(): text.xy[1] for text in axes.texts}  # type: ignore[attr-defined]
    assert heights["a"] == 0.49
    assert heights["b"] == pytest.approx(0.59)
    assert heights["e"] == pytest.approx(1.0)
    assert heights["d"] == pytest.approx(0.9)
