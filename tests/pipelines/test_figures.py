"""The style of figures, and the files that matplotlib is to draw."""

import sys
from itertools import pairwise

import pytest

from corpora.errors import FarspanError
from pipelines.figures import check_figure, count_axis, grid, label_lines, save, spread, thousands, use_style


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (950, "950"), (1000, "1k"), (4096, "4k"), (16384, "16k"), (1.5e6, "1.5M"), (1 << 20, "1M"), (2e9, "2B"),
     (-3000, "-3k"), (0.25, "0.25"), (999.9, "1k")],
)  # fmt: skip
def test_thousands(value: float, text: str):
    assert thousands(value) == text


def test_labels_keep_their_order_and_distance():
    heights = [10.0, 11.0, 50.0, 10.5]
    moved = spread(heights, 9.0)
    assert sorted(range(4), key=heights.__getitem__) == sorted(range(4), key=moved.__getitem__)
    ascending = sorted(moved)
    assert all(b - a >= 9 - 1e-9 for a, b in pairwise(ascending))
    assert spread([1.0, 20.0], 9.0) == [1.0, 20.0]
    assert spread([], 9.0) == []


def test_a_grid_is_no_strip(tmp_path):
    with use_style() as plt:
        shapes = {}
        for count in (1, 2, 3, 4, 5, 7):
            figure, axes = grid(plt, count)
            assert len(axes) == count
            shapes[count] = axes[0].get_subplotspec().get_gridspec().get_geometry()
            plt.close(figure)
    assert shapes == {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (2, 3), 7: (3, 3)}


def test_panels_of_equal_limits_have_numbers_at_the_outer_axes_alone():
    with use_style() as plt:
        figure, axes = grid(plt, 4, columns=4, shared=True)
        axes[0].set(xlim=(0, 7), ylim=(0, 9))
        assert {(axis.get_xlim(), axis.get_ylim()) for axis in axes} == {((0, 7), (0, 9))}
        assert [axis.yaxis.get_tick_params()["labelleft"] for axis in axes] == [True, False, False, False]
        plt.close(figure)


def test_a_logarithmic_axis_of_counts_ends_where_they_end(tmp_path):
    with use_style() as plt:
        figure, (axis,) = grid(plt, 1)
        axis.plot([100, 20_000], [0, 1])
        count_axis(axis.xaxis, 90, 22_000, log=True)
        assert axis.get_xlim() == (90, 22_000)
        assert {"128", "1k", "4k", "16k"} & {thousands(tick) for tick in axis.get_xticks()}
        save(plt, figure, str(tmp_path / "figure.svg"))


def test_a_figure_has_the_same_bytes_again(tmp_path):
    for name in ("a.svg", "b.svg"):
        with use_style() as plt:
            figure, (axis,) = grid(plt, 1)
            axis.plot([0, 1], [1, 2])
            label_lines(axis, [(1, 2, "first", "C0"), (1, 2, "second", "C1")])
            save(plt, figure, str(tmp_path / name))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", ["figure.svg", "figure.PNG", "figure.pdf"])
def test_a_figure_is_saved_in_a_folder_that_does_not_exist(tmp_path, name):
    with use_style() as plt:
        figure, _ = grid(plt, 1)
        save(plt, figure, str(tmp_path / "new" / name))
    assert (tmp_path / "new" / name).stat().st_size


def test_the_style_ends_with_its_block():
    import matplotlib

    before = matplotlib.rcParams["axes.spines.top"]
    with use_style():
        assert matplotlib.rcParams["axes.spines.top"] is False
    assert matplotlib.rcParams["axes.spines.top"] == before


def test_pictures_have_a_known_suffix(monkeypatch):
    for name in ("a.svg", "a.PNG", "folder.x/a.pdf"):
        check_figure(name)
    for name in ("a.docx", "a", "png"):
        with pytest.raises(FarspanError, match=rf"--figure {name}: the suffix names no kind of picture"):
            check_figure(name)
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    with pytest.raises(FarspanError, match=r"drawing a figure needs matplotlib.*pip install 'farspan\[figures\]'"):
        check_figure("a.svg")
