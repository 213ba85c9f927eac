"""Presets of ``principal_sentences``, i.e. how published systems choose gap sentences, and PEGASUS's stopwords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectives.api.special_tokens import UNKNOWN

# pegasus/params/pegasus_params.py and pegasus/ops/*.cc; input 512, target 256; one document, hence no separator.
_PEGASUS = {
    "strategy": "dynamic",
    "ratio": [0.33 * 0.45, 0.45],
    "noise": 0.2,
    "stopwords": "english",
    "precision": "float32",
    "ties": "later",
    "treatments": [0.9, 0.0, 0.1, 0.0],
    "separator": None,
    "target_length": 256,
}
# longt5/preprocessors.py: input 4,096, target 910. The path of the stopwords is blank in the published file, whose
# comment names the list: PEGASUS's. PEGASUS's mask is id 2, and over T5's unshifted ids that is <unk>.
_LONGT5 = {**_PEGASUS, "ratio": [0.33 * 0.2, 0.2], "target_length": 910, "mask_token": UNKNOWN}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "pegasus": _PEGASUS,
    # Section 6.2: a fixed ratio, no noise, and 20 % of the chosen sentences stay.
    "pegasus_paper": {
        **_PEGASUS,
        "strategy": "ind",
        "ratio": 0.45,
        "noise": 0.0,
        "treatments": [0.8, 0.0, 0.2, 0.0],
    },
    # The paper gives the ratios, for input 512 and then 4,096, both with target 256; the rest is PEGASUS's code.
    "pegasus_x": {**_PEGASUS, "ratio": 0.45},
    "pegasus_x_4096": {**_PEGASUS, "ratio": 0.05625},
    # The paper says Ind-Uniq, the code counts as Orig; the rest is the code's.
    "longt5_paper": {**_LONGT5, "counts": "uniq"},
    "longt5_code": _LONGT5,
    # fairseq/data/pegasus_dataset.py, with the options of fb_sweep/long_pretrain/sweep_pegasus.py.
    "bart_ls": {
        "ratio": 1 / 16,
        "rounding": "up",
        "counts": "uniq",
        "words": "tokens",
        "scope": "sequence",
        "begin": True,
        "separator": None,
        "target_length": 1024,
        "when_full": "stop",
    },
}


# google-research/pegasus (Apache-2.0), pegasus/ops/testdata/english_stopwords, which pegasus/params/pegasus_params.py
# names: 127 words in this order, NLTK's list of 2015. LongT5 (longt5/preprocessors.py) names the same list in a
# comment. No package of the index has exactly these words.
_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves what which who whom this that these those am is are
was were be been being have has had having do does did doing a an the and but if or because as until while of
at by for with about against between into through during before after above below to from up down in out on
off over under again further then once here there when where why how all any both each few more most other
some such no nor not only own same so than too very s t can will just don should now
"""

ENGLISH_STOPWORDS = tuple(_WORDS.split())
