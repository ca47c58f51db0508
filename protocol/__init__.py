"""What coordinator and hospitals agree on: requests, replies, descriptors, model bytes."""

__version__ = "0.1.0"
