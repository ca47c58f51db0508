"""Check with one HTTPS request whether the coordinator can be reached and has its certificate.

The request goes through the proxy where one is set. It uses Python's own HTTP client, so that
`feddc hospital check` does not import Flower.
"""

import ssl
from datetime import UTC, datetime
from http.client import HTTPException

from cryptography import x509

from client_app.connect.https_link import (
    clock_problem,
    date_problem,
    https_link,
    is_about_dates,
    server_certificate,
)
from operation.tls import client_context
from protocol.study.connection import Connection

_SECONDS = 10.0
_EXPIRY_DAYS = 30
_NOT_FOUND = 404  # the coordinator's nginx answers so to everything but Flower's requests


class WrongClock(Exception):
    """A certificate of the study is not valid at this machine's time."""


def why_unreachable(connection: Connection, *, seconds: float = _SECONDS) -> str:
    """Return why the coordinator can't be reached from here, or "" if it can.

    Raises WrongClock if only the dates of a certificate are wrong; for the pinned one that is
    noticed without a network too.
    """
    authority = x509.load_pem_x509_certificate(connection.certificate.encode())
    if problem := date_problem([authority]):
        raise WrongClock(problem)
    address = connection.address
    context = client_context(connection.certificate)
    through_proxy = False
    try:
        link, through_proxy = https_link(address, context, seconds)
        try:
            link.request("GET", "/")
            status = link.getresponse().status
        finally:
            link.close()
    except ssl.SSLCertVerificationError as error:
        if is_about_dates(error.verify_message) and (
            problem := clock_problem(address, connection.certificate, seconds)
        ):
            raise WrongClock(problem) from error
        return f"its certificate is not the study's ({error.verify_message})"
    except TimeoutError:
        return f"no answer within {seconds:.0f} s"
    except (OSError, HTTPException, ValueError) as error:
        via = " through the proxy" if through_proxy else ""
        return f"not reachable{via}: {getattr(error, 'strerror', None) or error}"
    return "" if status == _NOT_FOUND else f"another server answers there (HTTP status {status})"


def expiry_warning(
    connection: Connection, *, seconds: float = _SECONDS, now: datetime | None = None
) -> str:
    """Return in how many days the coordinator's certificate expires, if these are few."""
    authority = x509.load_pem_x509_certificate(connection.certificate.encode())
    for certificate in server_certificate(connection.address, authority, seconds):
        left = (certificate.not_valid_after_utc - (now or datetime.now(UTC))).days
        if left < _EXPIRY_DAYS:
            return f"its certificate expires in {left} days"
    return ""
