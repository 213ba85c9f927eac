"""One file per raw format; each yields records or says why a record is bad."""
