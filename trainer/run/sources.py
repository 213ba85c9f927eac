"""Opening and checks of the sources in a recipe's data sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.schemas.pairs import PairSet
from corpora.storage.shard_cache import ShardCache
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import OBJECTIVES, Objective, Tools, equip, load_objective
from objectives.api.special_tokens import SpecialTokens, is_sentinel
from trainer.data.batch import collate
from trainer.data.config import DataConfig, ObjectiveConfig, Source, SourceConfig, naming_source
from trainer.data.curriculum import Stage
from trainer.data.example_checks import check_lengths, spread_rows
from trainer.data.masked_corpus import MaskedCorpus, rows_of_positions
from trainer.data.mixture import Mixture, Part, one_vocabulary
from trainer.data.packed import PackedPairs
from trainer.data.paired import FewExamples, PairedSource, equip_task

_SAMPLE = 4  # rows of each source that are rendered when it is opened


def open_source(
    data: DataConfig, *, verify: bool = False, section: str = "data", cache: ShardCache | None = None
) -> Mixture:
    """Open the sources that a data section names."""
    parts = []
    for config in data.sources:
        with naming_source(data, config.name, section):
            source = _open(config, data, verify, section, cache)
        parts.append(Part(config.name, source, config.weight, data.shuffle_shards))
    mixture = Mixture(parts)
    check_sample(mixture, data, section)
    return mixture


def open_stages(stages: Sequence[Stage], *, verify: bool = False, cache: ShardCache | None = None) -> list[Mixture]:
    """Open the training data of each stage, with common special tokens; stages with the same data share a mixture."""
    return open_mixtures(
        stages, lambda stage: open_source(stage.data, verify=verify, section=stage.section, cache=cache)
    )


def open_mixtures(stages: Sequence[Stage], open_one: Callable[[Stage], Mixture]) -> list[Mixture]:
    """Make a mixture for each stage, with common special tokens; stages with the same data share one."""
    datas: list[DataConfig] = []
    mixtures: list[Mixture] = []
    for stage in stages:
        if stage.data not in datas:
            mixtures.append(open_one(stage))
            datas.append(stage.data)
    mixtures = one_vocabulary(mixtures)
    return [mixtures[datas.index(stage.data)] for stage in stages]


def _open(config: SourceConfig, data: DataConfig, verify: bool, section: str, cache: ShardCache | None) -> Source:
    if config.pairs:
        return _open_pairs(config, data, verify, section, cache)
    if data.packing:
        raise FarspanError("packing is true, but pairs is not set; rows of a corpus are full, so set it to false")
    if config.examples is not None:
        raise FarspanError(f"examples is {config.examples}, which draws pairs, but pairs is not set; leave it out")
    if not config.corpus:
        kind, meaning = ("corpus", "a corpus") if config.task is None else ("pairs", "the pairs of its task")
        example = "" if data.mixture else f": --set {section}.{kind}=FOLDER"
        raise FarspanError(f"{kind} is not set; name the folder of {meaning}{example}")
    if config.task is not None:
        raise FarspanError(f"a task renders pairs, but {config.corpus} is given as a corpus; give it as pairs")
    if config.masks == "":
        raise FarspanError("masks is ''; name the folder of a mask set, or leave it out")
    if config.masks is None and config.objective is None:
        example = "" if data.mixture else f" (--set {section}.masks=FOLDER)"
        raise FarspanError(
            f"neither masks nor objective is set; set one of them: a mask set to read{example}, or an objective to "
            "draw masks on the fly"
        )
    if config.masks is None and config.masks_options:
        raise FarspanError(
            f"masks_options is {dict(config.masks_options)!r}, but masks names no mask set; give them as "
            "objective.options"
        )
    corpus = Corpus(config.corpus, verify=verify, cache=cache)
    corpus.check_files()
    chosen = None if config.row_positions is None else rows_of_positions(corpus, *config.row_positions)
    if config.masks is None:
        assert config.objective is not None
        objective = _equip_objective(config.objective, corpus)
        return MaskedCorpus.of_objective(
            corpus,
            objective,
            config.objective.seed,
            redraw=config.objective.redraw,
            segment_ids=not data.across_documents,
            chosen=chosen,
        )
    masks = MaskSet(config.masks, config.masks_options, verify, cache)
    masks.check_files()
    if config.objective is not None:
        if config.objective.scorer:
            raise FarspanError(
                f"objective.scorer is {config.objective.scorer!r}, but the masks in {config.masks} are already "
                "chosen; leave out one of the two"
            )
        _check_objective(masks, config.objective)
    if not masks.adjusted and chosen is None:  # else lengths are known only when rows are read
        _check_lengths(masks, data)
    return MaskedCorpus.of_masks(corpus, masks, segment_ids=not data.across_documents, chosen=chosen)


def _open_pairs(config: SourceConfig, data: DataConfig, verify: bool, section: str, cache: ShardCache | None) -> Source:
    """Open the pairs of one split with their task, and check their lengths without rendering."""
    if config.task is None:
        raise FarspanError(
            'task is not set; name one, or a preset of text_to_text: task = { preset = "bart_ls" } (docs/tasks.md)'
        )
    if not data.across_documents:
        raise FarspanError(
            "across_documents is false, but tasks do not number the documents of positions, because a question belongs "
            "to all; leave it out"
        )
    pairs = PairSet(config.pairs, config.documents, verify, cache)
    pairs.check_files()
    pairs.documents.check_files()
    few = None if config.examples is None else FewExamples(config.examples, config.examples_seed)
    source = PairedSource.of(pairs, config.split, equip_task(config.task, pairs.folder), config.task.seed, few)
    for _ in check_lengths(source, data, section):
        pass  # warnings are given when a run starts
    return PackedPairs(source, data) if data.packing else source


def _equip_objective(config: ObjectiveConfig, corpus: Corpus) -> Objective:
    """Load the objective with the tools that it needs to mask ``corpus``."""
    objective = load_objective(config.name, config.preset, config.options)
    if hasattr(objective, "with_tools"):
        from trainer.scorer.scorers import load_scorer

        scorer = load_scorer(config.scorer) if config.scorer else None
        objective = equip(objective, Tools(load_tokenizer_of(corpus.folder), scorer))
    if config.scorer and "scorer" not in getattr(objective, "tools", {}):
        raise FarspanError(
            f"objective.scorer is {config.scorer!r}, but objective {config.name} uses no model; leave it out"
        )
    return objective


def _check_objective(masks: MaskSet, named: ObjectiveConfig) -> None:
    """Check that the masks were made by the objective that the recipe names beside them."""
    made = masks.objective
    if made.name != named.name:
        raise FarspanError(
            f"{masks.folder} holds masks of objective {made.name}, the recipe asks for {named.name}; give a mask set "
            "made with it, or leave out masks to draw them on the fly"
        )
    options = load_objective(named.name, named.preset, named.options).options
    presets = getattr(OBJECTIVES.factory(named.name), "presets", {})
    for name in {**presets.get(named.preset, {}), **named.options}:
        if options.get(name) != made.options.get(name):
            raise FarspanError(
                f"{masks.folder} holds masks of objective {made.name} with {name} {made.options.get(name)!r}, the "
                f"recipe asks for {options.get(name)!r}; give another mask set, or leave out masks to draw them on the "
                "fly"
            )


def _check_lengths(masks: MaskSet, data: DataConfig) -> None:
    """Check the maximum lengths in the manifest; longer rows would end the run at a later step."""
    for side in ("source", "target"):
        longest, limit = masks.manifest.totals.get(f"max_{side}_length", 0), getattr(data, f"{side}_length")
        if longest > limit:
            raise FarspanError(
                f"{masks.folder}: its longest {side} has {longest} positions, data.{side}_length is {limit}; raise it "
                "(and the model's positions), or make the mask set with shorter limits"
            )


def check_sample(mixture: Mixture, data: DataConfig, section: str = "data") -> None:
    """Render a few rows of each part, to find rows that are too long although no manifest says so."""
    for part in mixture.parts:
        rows = spread_rows(part.source, _SAMPLE)
        with naming_source(data, part.name, section):
            examples = part.source.examples(rows)
            if examples.labels is None:
                check_start(mixture.special, data)
            collate(examples, rows, data, mixture.special)


def check_start(special: SpecialTokens, data: DataConfig) -> None:
    """Check that the special tokens include the decoder's start token."""
    if data.decoder_start not in special.ids:
        raise FarspanError(
            f"data.decoder_start is {data.decoder_start!r}, but the special tokens are "
            f"{', '.join(name for name in special.ids if not is_sentinel(name))}; choose one of them"
        )
