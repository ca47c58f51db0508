"""SuperLink, proxy and long polling in the background."""
