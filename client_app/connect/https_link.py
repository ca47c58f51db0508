"""HTTPS connections to the coordinator with the standard library, through the proxy if one is set.

A certificate that is genuine but not valid at this machine's time means most often that the
machine's clock is wrong.
"""

import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from http.client import HTTPSConnection
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cryptography import x509

from protocol.address import Address

_HERE = "127.0.0.1"  # a forwarder on this machine
_DATE_ERRORS = ("certificate has expired", "certificate is not yet valid")


def https_link(
    address: Address, context: ssl.SSLContext, seconds: float
) -> tuple[HTTPSConnection, bool]:
    """Return a connection that is not open yet, and whether it goes through a proxy."""
    is_direct = address.host == _HERE or proxy_bypass(address.host)
    proxy = None if is_direct else getproxies().get("https")
    if not proxy:
        link = HTTPSConnection(address.host, address.port, timeout=seconds, context=context)
        return link, False
    server = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    link = HTTPSConnection(
        server.hostname or "", server.port or 80, timeout=seconds, context=context
    )
    link.set_tunnel(address.host, address.port)
    return link, True


def is_about_dates(error: str) -> bool:
    """Return whether TLS failed only because of a certificate's dates.

    OpenSSL checks the dates last: the certificate was issued by the pinned authority.
    """
    return any(words in error for words in _DATE_ERRORS)


def clock_problem(
    address: Address, authority: str, seconds: float, now: datetime | None = None
) -> str:
    """Compare this machine's clock with the dates of the authority's and the server's certificate.

    Returns "" if both are valid now, or if the server's can't be read.
    """
    pinned = x509.load_pem_x509_certificate(authority.encode())
    return date_problem([pinned], now) or date_problem(
        server_certificate(address, pinned, seconds), now
    )


def date_problem(certificates: Iterable[x509.Certificate], now: datetime | None = None) -> str:
    """Return a question about this machine's clock; "" if all certificates are valid now."""
    now = now or datetime.now(UTC)
    for certificate in certificates:
        start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not start <= now <= end:
            return (
                f"is this machine's clock right? It shows {now:%Y-%m-%d %H:%M} UTC, and the "
                f"study's certificate is valid from {start:%Y-%m-%d} to {end:%Y-%m-%d}"
            )
    return ""


def server_certificate(
    address: Address, authority: x509.Certificate, seconds: float
) -> list[x509.Certificate]:
    """Return the server's certificate if the authority issued it; nothing is sent to the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    link, _ = https_link(address, context, seconds)
    try:
        link.connect()
        shown = link.sock.getpeercert(binary_form=True) or b""
        certificate = x509.load_der_x509_certificate(shown)
        certificate.verify_directly_issued_by(authority)
    except Exception:  # unreachable, or of another authority: the libraries raise many kinds
        return []
    finally:
        link.close()
    return [certificate]
