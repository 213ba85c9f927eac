"""Presets of ``text_to_text``: how published systems render their fine-tuning data.

Where paper and code differ, a preset follows the code, because the numbers were measured with it. docs/tasks.md lists
all differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectives.api.special_tokens import DOCUMENT_SEPARATOR, END

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Xiong et al. 2022, section 3.1, and fairseq/tasks/summarization.py: MixedSentencesDataset. The question is in
    # every block. query_length is that of NarrativeQA and Qasper; QMSum has 45, ContractNLI 35, QuALITY 200.
    "bart_ls": {
        "query": "every_block",
        "query_length": 32,
        "block": 1024,
        "middle": END,
        "separator": None,
        "source_length": 16384,
        "target_length": 1024,
    },
    # The same code without queries. Sources do not start with <s>, though those of pretraining do.
    "bart_ls_summary": {
        "query": "none",
        "separator": None,
        "begin": False,
        "source_length": 16384,
        "target_length": 1024,
    },
    # Phang et al. 2022, table 15: text and </s>. SCROLLS inputs are used unchanged: question, empty line and text.
    # Lengths are those of arXiv; table 15 has others for other tasks, and appendix E contradicts it on GovReport.
    "pegasus_x": {
        "query": "first",
        "middle": "\n\n",
        "separator": None,
        "begin": False,
        "source_length": 16384,
        "target_length": 256,
    },
    # Guo et al. 2022, section 4.3, and longt5/preprocessors.py: nq, triviaqa. One answer of several is the target.
    "longt5_qa": {
        "query": "first",
        "prefix": "question: ",
        "middle": " context: ",
        "separator": None,
        "begin": False,
        "source_length": 16384,
        "target_length": 128,
        "targets": "first",
    },
    # Guo et al. 2022, section 4.1.2, and t5/data/preprocessors.py: summarize.
    "longt5_summary": {
        "query": "none",
        "prefix": "summarize: ",
        "separator": None,
        "begin": False,
        "source_length": 16384,
        "target_length": 512,
    },
    # longformer/scripts/summarization.py: <s> text </s>, global attention on <s>; a question as in triviaqa.py, before
    # the first </s>. The 256 tokens of a target include the <s> that the decoder starts from, so 255 are predicted.
    "led": {
        "query": "first",
        "middle": END,
        "separator": None,
        "global_attention": "bos",
        "source_length": 16384,
        "target_length": 255,
    },
    # Xiao et al. 2022, sections 2.1 and 4.1, and PRIMER/script/dataloader.py: a document keeps 4096 // documents
    # positions, of which its own <s> and </s> are then dropped. The 1,024 tokens of a target include the decoder's <s>.
    "primera": {
        "query": "none",
        "documents": "shares",
        "leftover": "lost",
        "separator": DOCUMENT_SEPARATOR,
        "separator_last": True,
        "global_attention": "separators",
        "source_length": 4096,
        "target_length": 1023,
    },
    # Shaham et al. 2022, appendix D, and scrolls/baselines/src/run.py: LED over the unchanged inputs: question, empty
    # line and text. Targets start with <s>, as the tokenizer writes them.
    "scrolls": {
        "query": "first",
        "middle": "\n\n",
        "separator": None,
        "target_begin": True,
        "global_attention": "bos",
        "source_length": 16384,
        "target_length": 1024,
    },
    # docs/probes.md: the decoder is given the question and the beginning of its answer, with which RULER's prompts end.
    "probe": {
        "query": "decoder",
        "separator": None,
        "target_space": True,
        "source_length": 16384,
        "target_length": 512,
    },
}
