"""The error that the courier needs too: messages.py, where it belongs, takes long to import."""


class MessageError(ValueError):
    """The bytes are not a message in the agreed form."""
