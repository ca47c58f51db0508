"""Keys and envelopes: how one member's message reaches another through the coordinator unread."""
