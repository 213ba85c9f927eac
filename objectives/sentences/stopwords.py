"""The English stopwords of PEGASUS.

Source: google-research/pegasus (Apache-2.0), ``pegasus/ops/testdata/english_stopwords``, which
``pegasus/params/pegasus_params.py`` names: 127 words in this order, NLTK's list of 2015. LongT5
(``longt5/preprocessors.py``) names the same list in a comment. No package of the index has exactly these words.
"""

_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves what which who whom this that these those am is are
was were be been being have has had having do does did doing a an the and but if or because as until while of
at by for with about against between into through during before after above below to from up down in out on
off over under again further then once here there when where why how all any both each few more most other
some such no nor not only own same so than too very s t can will just don should now
"""

ENGLISH_STOPWORDS = tuple(_WORDS.split())
