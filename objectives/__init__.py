"""Pretraining objectives, fine-tuning tasks and metrics. Imports neither Beam nor torch.

Each objective is one module here: ``span``, ``principal_sentences``, ``entity_pyramid``, ``model_based``,
``cross_document``, ``prefix_lm``, ``fill_in_the_middle``, and ``mixture`` of any of these. The
packages hold their common parts: ``api`` (the protocol, masks, examples), ``rendering``, ``sentences``, ``draws`` and
``rouge``. ``tasks`` renders pairs for fine-tuning, and ``metrics`` scores predictions.
"""
