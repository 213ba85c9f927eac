"""``farspan show``: one row as a person reads it and as the model sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from itertools import islice

import numpy as np
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.storage.files import write_bytes
from corpora.storage.manifest import read_manifest, require_local
from corpora.tokenizers import Tokenizer, load_tokenizer_of
from objectives.api.examples import IGNORED, Examples
from objectives.api.mask_set import MaskSet
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.api.protocol import CorpusFacts, Objective, draw_key, mask_key
from objectives.api.special_tokens import SpecialTokens
from pipelines.inspect.options import Choice
from pipelines.masks import equipped_objective

# style of a span's text, by what happens to it
_HIDDEN, _SHOWN, _REPLACED, _CANDIDATE = "black on yellow", "black on green", "black on magenta", "underline"
_LEGEND = (("hidden", _HIDDEN), ("visible and asked", _SHOWN), ("replaced", _REPLACED), ("candidate", _CANDIDATE))

# The colours of a figure, from black to white: grounds are light, so that text on them is read on paper too.
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


@dataclass(frozen=True)
class Masked:
    """One masked row and how it is shown."""

    objective: Objective
    special: SpecialTokens
    masks: MaskBatch


def show(
    folder: str,
    row: int,
    corpus_folder: str | None = None,
    width: int = 0,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    console: Console | None = None,
    figure: str | None = None,
) -> None:
    """Print a row of a corpus; of a mask set, or under an objective, also what is hidden and what the model sees.

    Args:
        row: its number in the artefact.
        corpus_folder: where a mask set's corpus lies, if not where its manifest says.
        width: characters of each text, 0 for all.
        figure: an SVG file to draw it into, instead of printing.

    Raises:
        FarspanError: no such row, masks of another corpus, or a choice that does not fit.
    """
    if width < 0:
        raise FarspanError(f"--width {width}: give how many characters to show of each text, 0 for all")
    if figure:
        if not figure.endswith(".svg"):
            raise FarspanError(f"--figure {figure}: is drawn as SVG; give FILE.svg")
        console = Console(highlight=False, record=True, width=110, file=StringIO(), force_terminal=True)
    console = console or Console(highlight=False, soft_wrap=True)
    stored = None
    require_local(folder)
    if read_manifest(folder).format == "farspan.masks":
        if choice.objective:
            raise FarspanError(f"--objective {choice.objective}: {folder} holds masks; show the corpus instead")
        if flags := _given(choice, "preset", "scorer", "seed"):
            raise FarspanError(f"{flags}: {folder} holds masks, which are drawn already; show the corpus instead")
        stored = MaskSet(folder, choice.options)
        if not 0 <= choice.draw < stored.draws:
            raise FarspanError(f"--draw {choice.draw}: {folder} has draws 0 to {stored.draws - 1}")
        corpus_folder = corpus_folder or stored.parent_folder
    elif corpus_folder:
        raise FarspanError(f"--corpus {corpus_folder}: {folder} holds no masks; leave the flag out")
    elif not choice.objective and (flags := _given(choice, "preset", "options", "scorer", "seed", "draw")):
        raise FarspanError(f"{flags}: {folder} holds no masks; name what hides: --objective NAME")
    corpus = Corpus(corpus_folder or folder)
    if stored is not None:
        stored.check_parent(corpus)
    if not len(corpus):
        raise FarspanError(f"{corpus.folder}: holds no sequence; there is nothing to show")
    if not 0 <= row < len(corpus):
        raise FarspanError(f"--row {row}: {corpus.folder} has rows 0 to {len(corpus) - 1}")
    rows = np.array([row])
    batch = corpus.take(rows)
    tokenizer = load_tokenizer_of(corpus.folder)
    masked = None
    if stored is not None:
        masked = Masked(stored.objective, stored.special_tokens, stored.masks(batch, rows, choice.draw))
    elif choice.objective:
        masked = _draw(corpus, batch, choice)
    place = f" of {printable(folder)}, sequence {batch.sequence_id(0).hex()}"
    console.print(Text.assemble((f"row {row}", "bold"), place))
    _parts(console, batch, None if masked else tokenizer, width)
    if masked:
        _spans(console, batch, masked.masks, tokenizer, width)
        examples = masked.objective.render(batch, masked.masks, masked.special)
        _seen(console, examples, tokenizer, masked.special.ids, width)
    if figure:
        picture = console.export_svg(code_format=_SVG, theme=_ON_PAPER, title=" ", unique_id="show")
        write_bytes(figure, picture.encode())


def _given(choice: Choice, *names: str) -> str:
    """The flags of those parts of a choice that are not the default."""
    flags = ["--set" if name == "options" else f"--{name}" for name in names if getattr(choice, name)]
    return ", ".join(flags)


def _draw(corpus: Corpus, batch: SequenceBatch, choice: Choice) -> Masked:
    """The masks that ``farspan mask`` would store for these rows."""
    assert choice.objective
    objective = equipped_objective(corpus.folder, choice.objective, choice.preset, choice.options, choice.scorer)
    special = objective.validate(CorpusFacts.of(corpus.manifest))
    if choice.draw < 0:
        raise FarspanError(f"--draw {choice.draw}: give 0 for the first, or more")
    return Masked(objective, special, objective.mask(batch, draw_key(mask_key(choice.seed, objective), choice.draw)))


def _text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    return printable(tokenizer.decode(ids))


def as_seen(ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray) -> Text:
    """Rendered ids as text, special tokens by name and in colour, text at ``marked`` positions on a ground."""
    names = {value: name for name, value in special.items()}
    is_name = np.isin(ids, np.array(list(names), ids.dtype))
    text = Text()
    edges = np.flatnonzero(np.diff(is_name * 2 + (marked & ~is_name)) | is_name[1:]) + 1
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(ids)], strict=True):
        if start == stop:
            continue
        if is_name[start]:
            text.append(printable(names[int(ids[start])]), style="bold red" if marked[start] else "bold cyan")
        else:
            text.append(_text(tokenizer, ids[start:stop]), style=_SHOWN if marked[start] else "")
    return text


def _seen(console: Console, examples: Examples, tokenizer: Tokenizer, special: Mapping[str, int], width: int) -> None:
    """Source, and target or labels, of the only row; positions with global attention are counted and marked."""
    length = int(examples.source_lengths[0])
    globally = np.zeros(length, bool)
    note = ""
    if examples.global_positions is not None:
        globally = examples.global_positions[0, :length]
        note = f", {int(globally.sum())} with global attention"
    _heading(console, f"source, {length} positions{note}")
    console.print(_cut(as_seen(examples.source_ids[0, :length], tokenizer, special, globally), width))
    if examples.labels is not None:
        labels = examples.labels[0, :length]
        asked = np.flatnonzero(labels != IGNORED)
        _heading(console, f"labels, {len(asked)} positions asked")
        words = [f"{place}:{_text(tokenizer, labels[place : place + 1]).strip()}" for place in asked.tolist()]
        console.print(_cut(Text(" ".join(words)), width))
    elif length := int(examples.target_lengths[0]):
        _heading(console, f"target, {length} positions")
        ids = examples.target_ids[0, :length]
        console.print(_cut(as_seen(ids, tokenizer, special, np.zeros(length, bool)), width))


def _parts(console: Console, batch: SequenceBatch, tokenizer: Tokenizer | None = None, width: int = 0) -> None:
    """The row's parts, and with a tokenizer their texts."""
    pieces = np.split(batch.tokens[0], batch.document_starts[0][1:])
    columns = (batch.document_ids[0].as_py(), batch.document_offsets[0], pieces, batch.document_lengths[0])
    count, cluster = len(pieces), int(batch.cluster_ids[0])
    where = "" if cluster == NO_CLUSTER else f", cluster {cluster}"
    _heading(console, f"{count} {'part' if count == 1 else 'parts'}, {len(batch.tokens[0])} tokens{where}")
    most = count if tokenizer else _lines(count, width)
    for name, offset, piece, length in islice(zip(*columns, strict=True), most):
        style = "bold cyan" if tokenizer else ""
        console.print(Text(f"  {printable(name)}: tokens {offset} to {offset + len(piece)} of {length}", style=style))
        if tokenizer:
            console.print(_cut(Text(_text(tokenizer, piece)), width))
    _more(console, count - most)


def _spans(console: Console, batch: SequenceBatch, masks: MaskBatch, tokenizer: Tokenizer, width: int) -> None:
    """The text with its spans in colour, and why each was chosen, best first."""
    starts, sizes, flags = masks.span_starts[0], masks.span_lengths[0], masks.span_flags[0]
    asked = flags & IN_TARGET != 0
    heading = Text(f"\ntext, {int(asked.sum())} spans with {int(sizes[asked].sum())} tokens asked", style="bold")
    present = {_style(int(flag)) for flag in np.unique(flags)}
    for name, style in _LEGEND:
        if style in present:
            heading.append("  ").append(f" {name} ", style=style)
    console.print(heading)
    text, place, tokens = Text(), 0, batch.tokens[0]
    for start, size, flag in zip(starts.tolist(), sizes.tolist(), flags.tolist(), strict=True):
        text.append(_text(tokenizer, tokens[place:start]))
        text.append(_text(tokenizer, tokens[start : start + size]), style=_style(flag))
        place = start + size
    text.append(_text(tokenizer, tokens[place:]))
    console.print(_cut(text, width))
    reasons = list(_reasons(batch, masks, tokenizer))
    if reasons:
        _heading(console, "why")
        most = _lines(len(reasons), width)
        for line in reasons[:most]:
            console.print(line)
        _more(console, len(reasons) - most)


def _reasons(batch: SequenceBatch, masks: MaskBatch, tokenizer: Tokenizer) -> Iterator[Text]:
    """A line for each span with a score, rank or label, in order of rank where there are ranks."""
    columns = (masks.span_ranks, masks.span_scores, masks.span_labels)
    ranks, scores, labels = (None if column is None else column[0] for column in columns)
    if ranks is None and scores is None and labels is None:
        return
    starts, sizes = masks.span_starts[0], masks.span_lengths[0]
    order = range(len(starts)) if ranks is None else np.argsort(ranks, kind="stable").tolist()
    for span in order:
        line = Text("  ")
        if ranks is not None:
            line.append(f"#{int(ranks[span]) + 1} ")
        if scores is not None:
            line.append(f"score {float(scores[span]):.4f} ", style="bold")
        if labels is not None and (label := labels[span].as_py()):
            line.append(f"[{printable(label)}] ", style="cyan")
        start, size = int(starts[span]), int(sizes[span])
        line.append(f"tokens {start} to {start + size}: ", style="dim")
        said = " ".join(_text(tokenizer, batch.tokens[0][start : start + size]).split())
        yield line.append(said if len(said) <= 80 else said[:80] + " ...", style=_style(int(masks.span_flags[0][span])))


def _style(flag: int) -> str:
    if flag & REPLACED:
        return _REPLACED
    if flag & VISIBLE:
        return _SHOWN
    return _HIDDEN if flag & (IN_SOURCE | IN_TARGET) else _CANDIDATE


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def _lines(count: int, width: int) -> int:
    """How many of ``count`` lines to print: beside a cut text, one for about 100 characters of it."""
    return min(count, max(width // 100, 3)) if width else count


def _more(console: Console, count: int) -> None:
    if count:
        console.print(Text(f"  ... and {count} more", style="dim"))


def _cut(text: Text, width: int) -> Text:
    return text if not width or len(text) <= width else text[:width] + Text(" ...", style="dim")
