"""Options of the jobs from documents to neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from corpora.errors import FarspanError
from corpora.options import NO_FLAG, UNRECORDED, Flag
from corpora.retrieval.options import Search
from pipelines.options import Compression, DocumentsFolder, Folder, Output, Seed, Split, Threads

Precision = Literal["auto", "float32", "float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Options of an encoder; they determine the vectors, together with the encoder's files and the machine.

    Attributes:
        name: folder or Hugging Face hub name of a BERT-like encoder.
        pooling: ``mean`` of the last hidden states of all tokens, or the state of the first token (``cls``).
        normalize: scale vectors to length 1; Contriever's are not scaled.
        max_length: maximum number of input tokens, special tokens included; the model's own limit if that is smaller.
        precision: precision of the arithmetic. ``auto``: float16 on a GPU, else float32; ``bfloat16`` is several times
            faster on processors with AMX.
    """

    name: Annotated[str, Flag(name="encoder", metavar="MODEL")] = "facebook/contriever"
    pooling: Literal["mean", "cls"] = "mean"
    normalize: bool = False
    max_length: Annotated[int, Flag(least=1)] = 512
    precision: Precision = "auto"
    threads: Threads = 1


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Options of computing vectors, independent of their source.

    Attributes:
        encoder: the model and its use.
        long_documents: part to embed of a document longer than ``--max-length``: its principal sentences, or its first
            tokens.
        min_document_tokens: documents with fewer tokens of the corpus tokenizer get no vector.
        block: documents per task and shard, rounded up to multiples of 1,024.
    """

    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    long_documents: Literal["principal", "first"] = "principal"
    split: Split = "train"
    min_document_tokens: Annotated[int, Flag(least=1)] = 1
    block: Annotated[int, Flag(least=1)] = 4096
    compression: Compression = None


@dataclass(frozen=True, kw_only=True)
class Embed(Embedding):
    """Options of ``farspan embed``.

    Examples:
        farspan embed --documents documents --encoder facebook/contriever --output vectors
    """

    documents: DocumentsFolder
    output: Output


@dataclass(frozen=True, kw_only=True)
class CentroidOptions:
    """Options of clustering, independent of the source of the vectors.

    Attributes:
        centroids: first-level clusters; k-means needs 39 vectors for each. 0 for 256, or fewer if that leaves less
            than 20,000 vectors per cluster on average, few enough for an exact search.
        spherical: compare directions only.
        iterations: iterations of k-means.
        sample: maximum number of vectors that k-means is trained on; it uses 1,024 per cluster.
        max_documents: larger clusters are split again.
        task_documents: vectors that a task samples or partitions, in whole shards: more of them need more memory but
            fewer spills.
    """

    centroids: Annotated[int, Flag(least=0)] = 0
    spherical: Annotated[bool, Flag(name="euclidean", help="compare distances instead of directions")] = True
    iterations: Annotated[int, Flag(least=1)] = 20
    sample: Annotated[int, Flag(least=1000)] = 1_000_000
    max_documents: Annotated[int, Flag(least=2)] = 1_500_000
    task_documents: Annotated[int, NO_FLAG] = 1 << 17
    threads: Threads = 1
    seed: Seed = 0
    compression: Compression = None


@dataclass(frozen=True, kw_only=True)
class Clustering(CentroidOptions):
    """Options of ``farspan cluster``.

    Attributes:
        vectors: folder made by ``farspan embed``.

    Examples:
        farspan cluster --vectors vectors --output clusters
    """

    vectors: Folder
    output: Output


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search, independent of its input.

    Attributes:
        search: number of neighbours and method of the search; its seed is the job's.
        memory: GiB that a worker may use; a search that needs more is refused before work starts.
    """

    search: Search = field(default_factory=Search)
    memory: Annotated[float, UNRECORDED] = 8.0
    threads: Threads = 1
    compression: Compression = None

    def __post_init__(self) -> None:
        if not self.memory > 0:  # nan too
            raise FarspanError(f"--memory {self.memory:g}: give a positive number of GiB")


@dataclass(frozen=True, kw_only=True)
class NeighbourSearch(SearchOptions):
    """Options of ``farspan neighbours``.

    Attributes:
        clusters: folder made by ``farspan cluster``.

    Examples:
        farspan neighbours --clusters clusters --k 100 --output neighbours
    """

    clusters: Folder
    output: Output
