"""Devices, process groups, and the wrapping of a model for distributed training."""
