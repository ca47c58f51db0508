"""Check with one HTTPS request whether the coordinator can be reached and has its certificate.

The request goes through the proxy where one is set. It uses Python's own HTTP client, so that
`feddc hospital check` does not import Flower.
"""

import ssl
from http.client import HTTPException, HTTPSConnection
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from protocol.study.connection import Connection

_SECONDS = 10.0
_NOT_FOUND = 404  # the coordinator's nginx answers so to everything but Flower's requests


def why_unreachable(connection: Connection, *, seconds: float = _SECONDS) -> str:
    """Return why the coordinator can't be reached from here, or "" if it can."""
    address = connection.address
    context = ssl.create_default_context(cadata=connection.certificate)
    proxy = None if proxy_bypass(address.host) else getproxies().get("https")
    try:
        if proxy:
            server = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            link = HTTPSConnection(
                server.hostname or "", server.port or 80, timeout=seconds, context=context
            )
            link.set_tunnel(address.host, address.port)
        else:
            link = HTTPSConnection(address.host, address.port, timeout=seconds, context=context)
        try:
            link.request("GET", "/")
            status = link.getresponse().status
        finally:
            link.close()
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not the study's ({error.verify_message})"
    except TimeoutError:
        return f"no answer within {seconds:.0f} s"
    except (OSError, HTTPException, ValueError) as error:
        via = " through the proxy" if proxy else ""
        return f"not reachable{via}: {getattr(error, 'strerror', None) or error}"
    return "" if status == _NOT_FOUND else f"another server answers there (HTTP status {status})"
