"""TLS as every client of this project uses it: version 1.3, and one pinned authority."""

import ssl


def client_context(authority: str) -> ssl.SSLContext:
    """Return a context that accepts the server certificates of one authority, given as PEM text.

    The coordinator's nginx speaks TLS 1.3 only. Requiring it here too means that whoever answers
    with less is reported as such.
    """
    context = ssl.create_default_context(cadata=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
