"""Drawing in farspan's style: a grid of panels, thousands as 4k, labels at the lines, files of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from corpora.errors import FarspanError, from_extra
from corpora.storage.files import write_bytes

STYLE = Path(__file__).with_name("farspan.mplstyle")
_PANEL = (3.4, 2.3)  # inches
_LINE = 9.0  # points between two labels
_LABEL = "label of a line"  # marks the texts of label_lines


@contextmanager
def use_style() -> Iterator[Any]:
    """Yield ``matplotlib.pyplot`` in the style of farspan's figures; the style ends with the ``with`` block."""
    with from_extra("figures", "drawing a figure"):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    with plt.style.context(STYLE):
        yield plt


def check_figure(path: str) -> None:
    """Check, before any work, that matplotlib is installed and can draw a file with the suffix of ``path``."""
    with from_extra("figures", "drawing a figure"):
        from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if PurePath(path).suffix[1:].lower() not in known:
        raise FarspanError(f"--figure {path}: the suffix names no kind of picture; give FILE.svg, FILE.png or FILE.pdf")


def grid(
    plt: Any, count: int, columns: int = 3, panel: tuple[float, float] = _PANEL, shared: bool = False
) -> tuple[Any, list[Any]]:
    """A figure of ``count`` panels in rows of at most ``columns``, and their axes in reading order.

    ``panel`` is width and height in inches. If the limits are ``shared``, only the outer axes have numbers.
    """
    columns = min(columns, count) if count != 4 or columns != 3 else 2  # four panels make a square
    rows = -(-count // columns)
    size = (panel[0] * columns, panel[1] * rows)
    figure, axes = plt.subplots(
        rows, columns, figsize=size, sharex=shared, sharey=shared, squeeze=False, layout="constrained"
    )
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_visible(False)
    return figure, flat[:count]


def save(plt: Any, figure: Any, path: str) -> None:
    """Write a figure in the format of the path's suffix, without the time, and close it."""
    _move_labels_apart(figure)
    drawn = BytesIO()
    kind = PurePath(path).suffix[1:].lower()
    figure.savefig(drawn, format=kind, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)
    write_bytes(path, drawn.getvalue())


def thousands(value: float) -> str:
    """A number as on an axis: 950, 4k, 16k, 1.5M, 2B; 4096 and other powers of two are 4k."""
    for power, letter in ((9, "B"), (6, "M"), (3, "k")):
        unit = 10.0**power
        if abs(value) >= 0.9995 * unit:
            binary = 2.0 ** (10 * power // 3)
            exact = value / binary if value % binary == 0 else value / unit
            return f"{exact:.3g}{letter}"
    return f"{value:.3g}"


def count_axis(axis: Any, low: float, high: float, log: bool) -> None:
    """An axis of counts from ``low`` to ``high``; a logarithmic one has powers of two, and no empty decade."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    if log:
        axis.axes.set_xscale("log", base=2)
        first, last = int(np.floor(np.log2(max(low, 1)))), int(np.ceil(np.log2(max(high, 2))))
        step = max(1, -(-(last - first) // 7))
        first += (12 - first) % step  # so that 4k is among them
        axis.set_major_locator(FixedLocator([2.0**power for power in range(first, last + 1, step)]))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(5, integer=True))
    near = high - low < 0.05 * high  # rounded to three digits, neighbouring ticks would be equal
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if near else thousands(value)))
    axis.axes.set_xlim(low, high)


def label_lines(axis: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write labels at lines' ends ``(x, y, label, colour)``, in data coordinates.

    ``save`` moves those apart that would overlap.
    """
    for x, y, label, colour in ends:
        axis.annotate(
            label,
            (x, y),
            (4, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=8,
            annotation_clip=False,
            label=_LABEL,
        )


def line_above(axis: Any, text: str, colour: str, number: int = 0) -> None:
    """Write a line above a panel, ``number`` lines over the lowest; the title needs 9 points of padding for each."""
    axis.annotate(
        text, (0, 1), (0, 4 + _LINE * number), "axes fraction", textcoords="offset points", color=colour, fontsize=7
    )


def short_names(paths: Sequence[Path | PurePath]) -> list[str]:
    """Short names of folders: their last parts, as many as tell them apart."""
    parts = [path.parts for path in paths]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _move_labels_apart(figure: Any) -> None:
    """Lay the figure out once, then move labels of lines that overlap."""
    labels = [[text for text in axis.texts if text.get_label() == _LABEL] for axis in figure.axes]
    if not any(labels):
        return
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axis, texts in zip(figure.axes, labels, strict=True):
        heights = [float(axis.transData.transform(text.xy)[1]) for text in texts]
        for text, height, moved in zip(texts, heights, spread(heights, _LINE * figure.dpi / 72), strict=True):
            text.xyann = (4, (moved - height) * 72 / figure.dpi)


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Move heights up until any two are at least ``apart``, then all back by the mean; in the given order."""
    order = np.argsort(heights, kind="stable")
    ascending = np.array(heights, float)[order]
    for number in range(1, len(ascending)):
        ascending[number] = max(ascending[number], ascending[number - 1] + apart)
    if len(ascending):
        ascending -= (ascending - np.array(heights, float)[order]).mean()
    moved = np.empty(len(ascending))
    moved[order] = ascending
    return moved.tolist()
