"""The protocol between coordinator and hospitals: messages, envelopes, keys, descriptors."""

__version__ = "0.1.0"
