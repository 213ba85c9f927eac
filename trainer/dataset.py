"""A corpus and its masks as a map-style dataset of PyTorch, with the inputs of transformers' models."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from corpora.errors import FarspanError, nearest
from corpora.printing import format_count, row_numbers
from corpora.schemas.corpus import Corpus
from corpora.storage.shard_cache import ShardCache
from corpora.storage.sharded_rows import ShardedRows
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.examples import IGNORED, Examples
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import Objective, Tools, equip, load_objective
from objectives.api.special_tokens import END, PAD, SpecialTokens
from objectives.rendering.stream import StreamLayout, Streams
from trainer.data.masked_corpus import MaskedCorpus, TextCorpus
from trainer.data.order import Share, sample_places
from trainer.data.remote_shards import MappedShards

_SOURCE = "data"  # name of a recipe's only source, which its order depends on
_Rows = TypeVar("_Rows", bound=ShardedRows)
_CHUNK = 1 << 16  # positions of an epoch whose rows are computed at a time


class Dataset(torch.utils.data.Dataset[dict[str, Tensor]]):
    """A map-style dataset whose item i is sequence i of a corpus, rendered with its masks.

    An item is a dictionary of int64 tensors without padding: ``input_ids`` ``(S,)`` and ``attention_mask`` ``(S,)``,
    the encoder's input; ``labels`` ``(T,)`` and ``decoder_input_ids`` ``(T,)``, the target and the target shifted
    right, or ``labels`` ``(S,)`` alone for an encoder-only objective, -100 where no token is predicted;
    ``global_attention_mask`` ``(S,)`` if the objective has global positions. ``collate`` pads items to a batch.

    With a stream's layout, items are for decoders: ``input_ids``, ``labels`` (-100 where no token is predicted, not
    shifted) and ``position_ids``, ``(S,)`` each, for source and target as one row or for text without masks.
    ``collate`` puts the rows of a batch one after another, with the ends of their documents for FlashAttention, or side
    by side with a mask.

    Attributes:
        special_tokens: ids of the special tokens that rendering adds to the tokenizer's.
        vocab_size: number of embeddings that a model needs for these examples.
    """

    special_tokens: SpecialTokens
    vocab_size: int

    def __init__(
        self,
        corpus: str | os.PathLike[str],
        masks: str | os.PathLike[str] | None = None,
        *,
        objective: str | Objective | None = None,
        preset: str | None = None,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        decoder_start: str = END,
        cache_gib: float | None = None,
        layout: str | StreamLayout = "source_target",
    ) -> None:
        """
        Args:
            corpus: folder made by ``farspan corpus``, on local disk or in a store.
            masks: folder made by ``farspan mask``; None draws masks with ``objective``, or gives text without masks.
            objective: draws the masks of an item: the name of an installed objective, or an object.
            preset: preset of the named objective.
            options: options of the named objective, which override the preset's; with ``masks``, only adjustable
                options.
            seed: seed of drawn masks; epoch e draws what draw e of ``farspan mask --seed`` would store.
            decoder_start: special token that ``decoder_input_ids`` begins with: ``<eos>`` (BART, LED) or ``<pad>`` (T5,
                PEGASUS).
            cache_gib: size in GiB of the cache on local disk for the shards of a remote corpus and mask set, the one of
                ``loading.cache_gib`` in recipes; with less than the data needs, read in the order of ``sampler``. None
                copies all shards when they are opened.
            layout: ``source_target`` for models with encoder and decoder; ``stream``, or a ``StreamLayout`` with its
                options, for decoders. Only a stream can do without ``masks`` and ``objective``.

        Raises:
            FarspanError: no corpus, masks of another corpus, an objective that cannot work on it, both or none of
                ``masks`` and ``objective``, a ``cache_gib`` that is not above 0, or a layout that does not fit.
        """
        if cache_gib is not None and not 0 < cache_gib < math.inf:
            raise FarspanError(f"cache_gib is {cache_gib}; it must be above 0")
        self._arguments: dict[str, Any] = {
            **{"corpus": corpus, "masks": masks, "objective": objective, "preset": preset, "options": options},
            **{"seed": seed, "decoder_start": decoder_start, "cache_gib": cache_gib, "layout": layout},
        }
        self._layout = _layout(layout)
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # persistent workers see a change
        cache = ShardCache.of_gib(cache_gib)
        self._source: MaskedCorpus | TextCorpus
        if self._layout and masks is None and objective is None:
            self._source = TextCorpus(_fetched(Corpus(os.fspath(corpus), cache=cache)), self._layout)
        else:
            self._source = _source(os.fspath(corpus), masks, objective, preset, options, seed, cache)
        self._mapped = MappedShards(self._source.cached) if self._source.cached else None
        self.special_tokens = self._source.special
        self.vocab_size = self._source.special.vocab_size
        if self._layout:
            self._layout.check(self.special_tokens, self._source.longest_known, self._source.artefacts[-1].folder)
            if len(self):
                self.__getitems__([0])  # refuses an objective without target
            return
        if decoder_start not in self.special_tokens.ids:
            known = ", ".join(self.special_tokens.ids)
            raise FarspanError(f"decoder_start {decoder_start!r}: not a special token; choose one of {known}")
        self._start = self.special_tokens[decoder_start]

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self._arguments, "epoch": self._epoch, "contents": self._contents()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self._epoch = state["epoch"]
        if self._contents() != state["contents"]:
            raise FarspanError(f"{self._source.corpus.folder}: made anew since this dataset was opened; open it again")

    def _contents(self) -> str:
        """Hash of the shards' checksums."""
        checksums = [shard.sha256 for rows in self._source.artefacts for shard in rows.manifest.shards]
        return hashlib.sha256("".join(checksums).encode()).hexdigest()

    def set_epoch(self, epoch: int) -> None:
        """Draw the masks of another epoch from now on; a mask set with n draws gives draw e modulo n in epoch e."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self._source)

    def __repr__(self) -> str:
        places = " ".join(rows.folder for rows in self._source.artefacts)
        kind = f"objective {self._source.objective.name}" if isinstance(self._source, MaskedCorpus) else "text"
        stream = ", streams" if self._layout else ""
        return f"Dataset({places}): {format_count(len(self), 'sequence')}, {kind}{stream}, epoch {int(self._epoch)}"

    @overload
    def __getitem__(self, index: int) -> dict[str, Tensor]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Tensor]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Tensor] | list[dict[str, Tensor]]:
        """Render an item; for a slice, a list of items.

        Raises:
            IndexError: an item that is not there.
        """
        if isinstance(index, slice):
            return self.__getitems__(range(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of {self._source.corpus.folder}, which has {row_numbers(len(self))}")
        return self.__getitems__([index % len(self)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Tensor]]:
        """Render the items at ``indices`` in one call; used by ``DataLoader``."""
        rows = np.asarray(indices, np.int64)
        epochs = np.full(len(rows), int(self._epoch), np.int64)
        if self._mapped:
            self._mapped.hold([*self._source.shards(rows, epochs)])
        items = self._items(rows, epochs)
        if self._mapped:
            self._mapped.release()
        return items

    def sampler(self, shuffle_shards: int, seed: int = 0) -> torch.utils.data.Sampler[int]:
        """Make a sampler that shuffles the rows of a few shards together, for data read through a cache.

        Its order is that of a recipe with the same ``data.shuffle_shards`` and ``run.seed`` (``docs/training.md``), of
        the epoch that ``set_epoch`` has chosen: each shard is fetched once an epoch.

        Args:
            shuffle_shards: number of shards in a group; 0 permutes all rows.

        Raises:
            FarspanError: a number below 0, or a cache that cannot hold two groups.
        """
        if shuffle_shards < 0:
            raise FarspanError(f"shuffle_shards is {shuffle_shards}; it must be at least 0")
        if self._mapped:
            shards = f"two groups of {shuffle_shards} shards" if shuffle_shards else "all shards"
            self._mapped.require(self._source.most_bytes(2 * shuffle_shards or None), shards)
        rows = self._source.shard_rows if shuffle_shards else ()
        return _Order(Share(_SOURCE, len(self), 1.0, rows, shuffle_shards), seed, self._epoch)

    def _items(self, rows: np.ndarray, epochs: np.ndarray) -> list[dict[str, Tensor]]:
        if self._layout:
            return _stream_items(self._source.streams(rows, epochs, self._layout), self._layout)
        assert isinstance(self._source, MaskedCorpus)
        examples = self._source.examples(rows, epochs)
        return [self._item(examples, row) for row in range(len(examples))]

    def _item(self, examples: Examples, row: int) -> dict[str, Tensor]:
        source, target = int(examples.source_lengths[row]), int(examples.target_lengths[row])
        item = {"input_ids": examples.source_ids[row, :source], "attention_mask": np.ones(source, np.int64)}
        if examples.labels is None:
            ids = examples.target_ids[row, :target]
            item |= {"labels": ids, "decoder_input_ids": np.concatenate([[self._start], ids])[:target]}
        else:
            item["labels"] = examples.labels[row, :source]
        if examples.global_positions is not None:
            item["global_attention_mask"] = examples.global_positions[row, :source]
        return {name: torch.from_numpy(values.astype(np.int64)) for name, values in item.items()}

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
        """Pad items to a batch: a ``collate_fn`` for ``DataLoader``, or a collator for ``Trainer``.

        A batch of streams is a dictionary for transformers' decoders (``farspan.StreamLayout``):

        - one row after another: ``input_ids``, ``labels`` and ``position_ids``, ``(1, T)`` int64, ``cu_seq_lens_q`` and
          ``cu_seq_lens_k``, ``(units + 1,)`` int32, and ``max_length_q`` and ``max_length_k``, as FlashAttention
          takes them;
        - with ``block_mask`` or attention ``prefix``: ``(B, S)`` each, padded, and ``attention_mask``, ``(B, 1, S, S)``
          bool, True where a position attends to another.

        Both have ``use_cache`` False, since with a cache transformers lets documents attend to each other.
        """
        pad = self.special_tokens[PAD]
        return _collate_streams(items, pad) if self._layout else _pad(items, pad)


class _Order(torch.utils.data.Sampler[int]):
    """The rows of an epoch in the order of a recipe with one source."""

    def __init__(self, share: Share, seed: int, epoch: Tensor) -> None:
        self._share, self._seed, self._epoch = share, seed, epoch

    def __len__(self) -> int:
        return self._share.size

    def __iter__(self) -> Iterator[int]:
        size = self._share.size
        first = int(self._epoch) * size
        for start in range(first, first + size, _CHUNK):
            samples = np.arange(start, min(start + _CHUNK, first + size))
            yield from sample_places(samples, [self._share], self._seed).indices.tolist()


def _layout(layout: str | StreamLayout) -> StreamLayout | None:
    """Return the options of a stream; None for source and target."""
    if isinstance(layout, StreamLayout):
        return layout
    if layout not in ("source_target", "stream"):
        known = nearest(layout, ["source_target", "stream"])
        raise FarspanError(f"layout {layout!r}: no layout{known}; choose source_target, stream or a StreamLayout")
    return StreamLayout() if layout == "stream" else None


def _source(
    corpus: str,
    masks: str | os.PathLike[str] | None,
    objective: str | Objective | None,
    preset: str | None,
    options: Mapping[str, Any] | None,
    seed: int,
    cache: ShardCache,
) -> MaskedCorpus:
    """Open the source that the arguments of ``Dataset`` describe."""
    rows = _fetched(Corpus(corpus, cache=cache))
    if objective is None and masks is not None:
        return MaskedCorpus.of_masks(rows, _fetched(MaskSet(os.fspath(masks), options, cache=cache)))
    if objective is None or masks is not None:
        raise FarspanError(
            f"{corpus}: give either masks, a folder, or objective, which draws masks; layout='stream' takes none too"
        )
    if isinstance(objective, str):
        objective = load_objective(objective, preset, options)
        if hasattr(objective, "with_tools"):
            objective = equip(objective, Tools(load_tokenizer_of(rows.folder)))
    return MaskedCorpus.of_objective(rows, objective, seed)


def _fetched(rows: _Rows) -> _Rows:
    """Check the files of a remote artefact, and fetch its shards if the cache holds them all."""
    if rows.cache:
        rows.check_files()
    return rows


def _stream_items(streams: Streams, layout: StreamLayout) -> list[dict[str, Tensor]]:
    """Make an item of int64 tensors of each row.

    If batches shall have a mask, ``attention_mask`` ``(S,)`` is the last position that each position attends to.
    transformers' ``Trainer`` drops names that a model does not take, so this needs one of them.
    """
    columns = {"input_ids": streams.input_ids, "labels": streams.labels, "position_ids": streams.position_ids}
    wide = {name: torch.from_numpy(column.values.astype(np.int64)) for name, column in columns.items()}
    lengths = streams.input_ids.lengths.tolist()
    rows = zip(*(values.split(lengths) for values in wide.values()), strict=True)
    items = [dict(zip(wide, row, strict=True)) for row in rows]
    if layout.needs_mask:
        prefixes = streams.prefix_lengths if layout.attention == "prefix" else np.zeros(len(items), np.int64)
        for item, prefix in zip(items, prefixes.tolist(), strict=True):
            item["attention_mask"] = torch.arange(len(item["input_ids"])).clamp(min=prefix - 1)
    return items


def _collate_streams(items: Sequence[Mapping[str, Tensor]], pad: int) -> dict[str, Any]:
    """Make a batch of items, as ``Dataset.collate`` describes it."""
    if "attention_mask" in items[0]:
        return _side_by_side(items, pad)
    batch: dict[str, Any] = {name: torch.cat([item[name] for item in items]) for name in items[0]}
    edges = torch.cat([torch.nonzero(batch["position_ids"] == 0)[:, 0], torch.tensor([len(batch["position_ids"])])])
    longest = int(edges.diff().max()) if len(edges) > 1 else 0
    ends = edges.to(torch.int32)
    lengths = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}
    return {**{name: values[None] for name, values in batch.items()}, **lengths, "use_cache": False}


def _side_by_side(items: Sequence[Mapping[str, Tensor]], pad: int) -> dict[str, Any]:
    """Pad items to ``(B, S)``, with a mask in which a position of padding attends to itself alone."""
    batch = _pad(items, pad)
    places = torch.arange(batch["input_ids"].shape[1])
    first, last = places - batch["position_ids"], batch["attention_mask"].maximum(places)
    mask = (places >= first[..., None]) & (places <= last[..., None])
    return {**batch, "attention_mask": mask[:, None], "use_cache": False}


def _pad(items: Sequence[Mapping[str, Tensor]], pad: int) -> dict[str, Any]:
    """Pad the tensors of each name to ``(B, S)``."""
    filler = {"input_ids": pad, "decoder_input_ids": pad, "labels": IGNORED}
    return {
        name: pad_sequence([item[name] for item in items], batch_first=True, padding_value=filler.get(name, 0))
        for name in items[0]
    }
