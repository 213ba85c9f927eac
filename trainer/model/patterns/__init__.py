"""The encoder's attention patterns, one file each, and the union of them that recipes select from by name."""

from trainer.model.patterns.bigbird import BigBird as BigBird
from trainer.model.patterns.block import Block as Block
from trainer.model.patterns.block_global import BlockGlobal as BlockGlobal
from trainer.model.patterns.full import Full as Full
from trainer.model.patterns.layered import Layered as Layered
from trainer.model.patterns.local import Local as Local
from trainer.model.patterns.overlap import Overlap as Overlap
from trainer.model.patterns.span import Span as Span
from trainer.model.patterns.staggered import Staggered as Staggered
from trainer.model.patterns.tglobal import TGlobal as TGlobal
from trainer.model.patterns.window import Window as Window

AnyPattern = Block | Overlap | BlockGlobal | Staggered | Local | TGlobal | Window | Span | Layered | BigBird | Full
"""The patterns that a recipe may name; a new pattern is a file in this folder and an entry here."""
