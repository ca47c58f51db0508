"""MessageError, apart from messages.py, which would slow down the courier's start."""


class MessageError(ValueError):
    """The bytes are not a valid message."""
