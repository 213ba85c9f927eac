"""File formats of other trainers."""

from collections.abc import Mapping

from pipelines.export.format import Format
from pipelines.export.formats.chunks import LITDATA, LLM_FOUNDRY, MDS
from pipelines.export.formats.flat import DATATROVE, FAIRSEQ, MEGATRON, OLMO
from pipelines.export.formats.parquet import MEGATRON_BRIDGE, PARQUET

FORMATS: Mapping[str, Format] = {
    "megatron": MEGATRON,
    "fairseq": FAIRSEQ,
    "mds": MDS,
    "llm-foundry": LLM_FOUNDRY,
    "olmo": OLMO,
    "datatrove": DATATROVE,
    "litdata": LITDATA,
    "parquet": PARQUET,
    "megatron-bridge": MEGATRON_BRIDGE,
}
