"""Pretraining objectives: the choice of what to hide in a sequence, and its rendering. Imports neither Beam nor torch.

Each objective is one module here: ``span``, ``principal_sentences``, ``entity_pyramid``, ``model_based`` and
``cross_document``. The packages hold their common parts: ``api`` (the protocol, masks, examples), ``rendering``,
``sentences``, ``draws`` and ``rouge``.
"""
