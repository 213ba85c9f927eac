"""The one exception that users are meant to read."""


class FarspanError(ValueError):
    """Something the user can cure: the message names the file, the record or field, the value and the cure."""
