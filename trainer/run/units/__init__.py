"""Units of training: what is trained, on which batches and with which loss, one file per kind."""
