"""The text of a data-set card, as a pure function of manifests and an example."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from corpora.printing import counted, printable
from corpora.schemas.documents import has_titles
from corpora.storage.manifest import Manifest
from pipelines.cards.columns import COLUMNS, ROWS
from pipelines.cards.made_by import command_of

UNKNOWN = "unknown"
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
_MANIFEST = "manifest.json"


def card(
    manifest: Manifest,
    ancestors: Sequence[tuple[str, Manifest | None]] = (),
    example: str | None = None,
    sha256: str = "",
) -> str:
    """Write the README.md of a finished artefact, in Markdown with the YAML head of a data-set card.

    The text depends on the arguments only: it contains no path, time or machine name. ``ancestors`` are sha256 and
    manifest of parent, grandparent and so on, None for one that cannot be found; ``sha256`` is the artefact's own.
    """
    parts = [
        _head(manifest),
        f"# {manifest.format}: {counted(_rows(manifest), 'row')}",
        _sentence(manifest),
        _loading(manifest),
        _numbers(manifest),
        _columns(manifest),
        _example(example),
        _ancestry(manifest, ancestors, sha256),
        _commands(manifest, ancestors),
        f"{_MANIFEST} is the record of this artefact; this page is derived from it. "
        "The formats are described in farspan's `docs/formats.md`.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def size_category(rows: int) -> str:
    """Return the Hugging Face hub's name for the size of a data set, from its number of rows."""
    at = max(len(str(rows)) - 3, 0) if rows >= 1000 else 0  # index of the first size above
    if at == 0:
        return f"n<{_SIZES[0]}"
    return f"{_SIZES[at - 1]}<n<{_SIZES[at]}" if at < len(_SIZES) else f"n>{_SIZES[-1]}"


def split_name(manifest: Manifest) -> str:
    """Return the name of the only split of ``load_dataset``: that of the predictions' pairs, else ``train``."""
    split = str(manifest.config.get("split", ""))
    return split if manifest.format == "farspan.predictions" and re.fullmatch(r"\w+", split) else "train"


def _rows(manifest: Manifest) -> int:
    return sum(shard.rows for shard in manifest.shards)


def _head(manifest: Manifest) -> str:
    """The YAML head; strings are written as JSON, which is a part of YAML."""
    languages = manifest.config.get("language") or [UNKNOWN]
    lines = [
        f"license: {json.dumps(manifest.config.get('license') or UNKNOWN)}",
        "language:",
        *(f"- {json.dumps(language)}" for language in languages),
        "size_categories:",
        f"- {size_category(_rows(manifest))}",
        "tags:",
        "- farspan",
        f"- {manifest.format}",
        "configs:",
        "- config_name: default",
        "  data_files:",
        f"  - split: {split_name(manifest)}",
        "    path: shards/*.arrow",
    ]
    return "\n".join(["---", *lines, "---"])


def _sentence(manifest: Manifest) -> str:
    """Describe the artefact in one sentence."""
    config, totals = manifest.config, manifest.totals
    noun, further = ROWS.get(manifest.format, ("row", ""))
    sentence = counted(_rows(manifest), noun) + further
    if "tokens" in totals:
        sentence += f", {counted(totals['tokens'], 'token')}"
    match manifest.format:
        case "farspan.documents":
            sources = ", ".join(f"`{_plain(source)}`" for source in config.get("sources", manifest.counts))
            sentence += f", from {sources}" if sources else ""
        case "farspan.corpus":
            sentence += f", of at most {config['sequence_length']:,} positions, made by builder `{config['builder']}`"
        case "farspan.masks":
            sentence += f": objective `{config['objective']}`"
        case "farspan.predictions":
            sentence += f": split `{_plain(str(config['split']))}`"
    return sentence + "."


def _loading(manifest: Manifest) -> str:
    split = split_name(manifest)
    column = {"farspan.documents": "held_out", "farspan.pairs": "split"}.get(manifest.format)
    note = f"\n\nAll rows are in this one split; the column `{column}` separates those for training." if column else ""
    return f"""\
## Load it

```python
from datasets import load_dataset

rows = load_dataset("FOLDER", split="{split}")  # add streaming=True to copy nothing
```{note}"""


def _numbers(manifest: Manifest) -> str:
    """Totals, bytes, and documents by source."""
    numbers = {**manifest.totals, "shards": len(manifest.shards), "bytes": sum(one.bytes for one in manifest.shards)}
    lines = ["## Numbers", "", "| | |", "|---|---:|"]
    lines += [f"| {name.replace('_', ' ')} | {value:,} |" for name, value in numbers.items()]
    shown = [
        name
        for name in ("read", "written", "filtered", "rejected", "uses", "tokens")
        if any(count.get(name) for count in manifest.counts.values())
    ]
    if shown:
        lines += ["", f"| source | {' | '.join(shown)} |", "|---|" + "---:|" * len(shown)]
        for source, count in manifest.counts.items():
            lines.append(f"| {_plain(source)} | {' | '.join(f'{count.get(name, 0):,}' for name in shown)} |")
    if manifest.rejects:
        reasons = ", ".join(f"{_plain(reason)} {count:,}" for reason, count in manifest.rejects.items())
        lines += ["", f"Rejected records, in `rejects/`: {reasons}."]
    return "\n".join(lines)


def _columns(manifest: Manifest) -> str:
    columns = COLUMNS.get(manifest.format, {})
    if manifest.format == "farspan.documents" and not has_titles(manifest):
        columns = {name: meaning for name, meaning in columns.items() if name != "title"}
    lines = [f"| `{name}` | {meaning} |" for name, meaning in columns.items()]
    return "\n".join(["## Columns", "", "| column | meaning |", "|---|---|", *lines]) if lines else ""


def _example(example: str | None) -> str:
    if not example:
        return ""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", example))])  # longer than any in the text
    return f"## The first row\n\n{fence}text\n{example}\n{fence}"


def _ancestry(manifest: Manifest, ancestors: Sequence[tuple[str, Manifest | None]], sha256: str) -> str:
    """Table of this artefact and its ancestors, with the sha256 of their manifests."""
    lines = ["## Ancestry", "", "| artefact | rows | sha256 of manifest.json |", "|---|---:|---|"]
    lines.append(f"| {manifest.format} (this one) | {_rows(manifest):,} | {sha256 and f'`{sha256}`'} |")
    for digest, ancestor in ancestors:
        format, rows = (ancestor.format, f"{_rows(ancestor):,}") if ancestor else ("an earlier artefact", "")
        lines.append(f"| {format} | {rows} | `{digest}` |")
    for role, digest in _others(manifest.config):
        lines.append(f"| {role} | | `{digest}` |")
    entry = manifest.tokenizer
    lines += ["", f"Tokenizer: {entry['vocab_size']:,} ids, fingerprint `{_plain(str(entry['fingerprint']))}`."]
    oldest = next((one for _, one in reversed(ancestors) if one), manifest)
    if oldest.inputs:
        size = sum(entry["bytes"] for entry in oldest.inputs)
        lines += ["", f"Raw text: {counted(len(oldest.inputs), 'file')}, {counted(size, 'byte')}."]
    return "\n".join(lines)


def _others(config: Mapping[str, object]) -> list[tuple[str, str]]:
    """Role and checksum of artefacts beside the parent, such as the neighbours of a linked corpus."""
    digests = [(name, value.get("manifest_sha256")) for name, value in config.items() if isinstance(value, Mapping)]
    return [(name, digest) for name, digest in digests if isinstance(digest, str)]


def _commands(manifest: Manifest, ancestors: Sequence[tuple[str, Manifest | None]]) -> str:
    """The commands that make the artefact's ancestors and the artefact, in the order in which to run them."""
    newest_first = [manifest, *(one for _, one in ancestors if one)]
    commands = [command for one in reversed(newest_first) if (command := command_of(one))]
    if not commands:
        return ""
    version = f" (made by farspan {manifest.farspan_version})" if manifest.farspan_version else ""
    text = "\n".join(map(printable, commands))
    return (
        f"## Make it again\n\nNames in capitals stand for folders and files of yours{version}.\n\n```bash\n{text}\n```"
    )


def _plain(text: str) -> str:
    """Escape a name from the data for a table in Markdown."""
    return re.sub(r"([|`<>\\])", r"\\\1", printable(text).replace("\n", " "))
