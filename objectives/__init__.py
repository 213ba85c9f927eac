"""What to hide in a sequence and how it is shown. Imports neither Beam nor torch.

- what an objective is: ``base``, ``options``, ``tools``, ``laws``; one of your own: ``authoring``; what it
  gives: ``masks``, ``mask_set``, ``verification``
- how masks are shown: ``rendering``, ``layout``, ``special_tokens``, ``global_attention``, ``examples``; and read back:
  ``reconstruction``
- ``span``: ``compositions``
- ``principal_sentences``: ``sentence_selection``, ``sentence_texts``, ``sentence_treatments``, ``stopwords``,
  ``target_budget``, ``rouge``
- ``entity_pyramid``: the same, ``pyramid``, ``entities``
- ``model_based``: ``span``, ``hardest_spans``
- ``cross_document``: ``token_draws``
"""
