"""Is the coordinator there, and is it the right one? Asked once, through the proxy if there is one.

Python's own HTTP is enough for that, and `check` has no need of Flower.
"""

import ssl
from http.client import HTTPException, HTTPSConnection
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from protocol.study.connection import Connection

_SECONDS = 10.0
_NOT_FOUND = 404  # the proxy's answer to everything that is not Flower's


def why_unreachable(connection: Connection, *, seconds: float = _SECONDS) -> str:
    """Say why the coordinator can't be reached from here; nothing if it can."""
    address = connection.address
    context = ssl.create_default_context(cadata=connection.certificate)
    proxy = None if proxy_bypass(address.host) else getproxies().get("https")
    try:
        if proxy:
            place = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            link = HTTPSConnection(
                place.hostname or "", place.port or 80, timeout=seconds, context=context
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
        return f"shows a certificate that is not the study's ({error.verify_message})"
    except TimeoutError:
        return f"no answer in {seconds:.0f} s"
    except (OSError, HTTPException, ValueError) as error:
        via = " through the proxy" if proxy else ""
        return f"not reachable{via}: {getattr(error, 'strerror', None) or error}"
    return "" if status == _NOT_FOUND else f"another server answers there (HTTP status {status})"
