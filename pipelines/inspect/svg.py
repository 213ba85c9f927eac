"""SVG figures of what `farspan show` prints."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from corpora.errors import FarspanError
from corpora.storage.files import write_bytes

# The colours of a figure, from black to white: backgrounds are light, so that text on them is legible on paper too.
_ON_PAPER = TerminalTheme(
    (255, 255, 255),
    (30, 30, 30),
    [
        (0, 0, 0),
        (190, 30, 30),
        (185, 230, 185),
        (255, 226, 130),
        (30, 60, 160),
        (232, 196, 240),
        (0, 115, 125),
        (90, 90, 90),
    ],
)
# A plain frame: no window, and whatever fixed-width font the reader has.
_SVG = """\
<svg viewBox="8 42 {terminal_width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect x="0" y="0" width="{width}" height="{height}" fill="white"/>
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def recording_console(path: str) -> Console:
    """A console that prints nothing and records what ``save_figure`` draws."""
    if not path.endswith(".svg"):
        raise FarspanError(f"--figure {path}: is drawn as SVG; give FILE.svg")
    return Console(highlight=False, record=True, width=110, file=StringIO(), force_terminal=True)


def save_figure(console: Console, path: str) -> None:
    """Draw the output of a recording console into an SVG file."""
    picture = console.export_svg(code_format=_SVG, theme=_ON_PAPER, title=" ", unique_id="show")
    write_bytes(path, picture.encode())
