"""The study's own certificate authority, and the certificate of its server.

Hospitals pin the authority, so the server's certificate can be renewed without them.
"""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from operation import files

_AUTHORITY_DAYS = 5 * 365
_SERVER_DAYS = 365
RENEW_DAYS = 90  # `up` renews a server certificate with fewer days left
_WARN_DAYS = 30  # time for a restart between two experiments
_AUTHORITY_WARN_DAYS = 365  # time for a new study, which every hospital joins
_CLOCK_SKEW = timedelta(hours=1)
_LOCAL = ("localhost", "127.0.0.1", "::1")


class CertificateError(Exception):
    """A key or certificate in the study's folder is missing or damaged."""


def make_authority(folder: Path, study: str, now: datetime | None = None) -> None:
    """Create the authority's key and certificate; existing files are not overwritten."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"FedDC study {study}"[:64])])
    now = now or datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    files.write_new(folder / "ca.key", _pem(key))
    files.write_new(folder / "ca.crt", certificate.public_bytes(Encoding.PEM), mode=0o644)


def make_server_certificate(folder: Path, host: str, now: datetime | None = None) -> None:
    """Create a new key and certificate for the server, and replace the present ones."""
    authority, authority_key = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    now = now or datetime.now(UTC)
    end = min(now + timedelta(days=_SERVER_DAYS), authority.not_valid_after_utc)
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(_names((host, *_LOCAL))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(authority_key, SHA256())
    )
    files.replace(folder / "server.key", _pem(key), mode=0o600)
    files.replace(folder / "server.pem", certificate.public_bytes(Encoding.PEM))


def why_renew(folder: Path, host: str) -> str:
    """Return why the server's certificate must be renewed; empty if it is valid."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
        key = load_pem_private_key((folder / "server.key").read_bytes(), None)
    except (OSError, ValueError):
        return "it is missing or unreadable"
    if key.public_key() != certificate.public_key():
        return "its key does not match"  # renewing was interrupted between the two files
    try:
        certificate.verify_directly_issued_by(_authority(folder)[0])
    except Exception:  # the library raises exceptions of several kinds
        return "another authority issued it"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if any(name not in names for name in _names((host, *_LOCAL))):
        return f"it does not cover {host}"
    if (left := days_left(folder)) < RENEW_DAYS:
        return f"it expires in {left} days"
    return ""


def days_left(folder: Path, served: bytes | None = None, now: datetime | None = None) -> int:
    """Return for how many days the server's certificate is still valid.

    `served` is the certificate that the proxy shows (DER), if it is up: until it is restarted, that
    may be older than the one in the folder.
    """
    if served is not None:
        certificate = x509.load_der_x509_certificate(served)
    else:
        certificate = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    return _days_left(certificate, now)


def expiry_warning(folder: Path, served: bytes | None = None, now: datetime | None = None) -> str:
    """Return which certificate ends soon and what to do; empty if none does."""
    authority, _ = _authority(folder)
    if (left := _days_left(authority, now)) < _AUTHORITY_WARN_DAYS:
        return (
            f"the study's certificate authority {_ends(left)}: create a new study, and let every "
            "hospital join it"
        )
    if (left := days_left(folder, served, now)) < _WARN_DAYS:
        return (
            f"the server's certificate {_ends(left)}: run `feddc coordinator down`, then `up`, "
            "which renews it; hospitals need not do anything"
        )
    return ""


def _days_left(certificate: x509.Certificate, now: datetime | None) -> int:
    return (certificate.not_valid_after_utc - (now or datetime.now(UTC))).days


def _ends(days: int) -> str:
    return f"expires in {days} days" if days >= 0 else "has expired"


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except OSError as error:
        raise CertificateError(
            f"{error.filename}: {error.strerror}; restore tls/ from your backup"
        ) from error
    except ValueError as error:
        raise CertificateError(
            f"{folder}: ca.crt or ca.key is damaged; restore tls/ from your backup"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise CertificateError(f"{folder}: ca.key is not the key of ca.crt")
    return certificate, key


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
