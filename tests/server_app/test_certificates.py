"""The coordinator's certificates: accepted by the strictest client, for its own names only."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from server_app.study import certificates

HOST = "fl.example.org"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certificates.make_authority(tmp_path, "hearts")
    certificates.make_server_certificate(tmp_path, HOST)
    return tmp_path


def shake_hands(server: Path, authority: Path, name: str) -> None:
    """Let a strict client and a server with these files agree, in memory."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(server / "server.pem", server / "server.key")
    theirs = ssl.create_default_context(cafile=str(authority))
    theirs.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(back, there, server_hostname=name)
    host = ours.wrap_bio(there, back, server_side=True)
    for _ in range(5):
        for side in (client, host):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("name", [HOST, "localhost", "127.0.0.1", "::1"])
def test_a_strict_client_accepts_the_server_under_its_names(name: str, folder: Path) -> None:
    shake_hands(folder, folder / "ca.crt", name)


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::1"])
def test_an_address_may_be_a_number(host: str, folder: Path) -> None:
    certificates.make_server_certificate(folder, host)

    shake_hands(folder, folder / "ca.crt", host)


def test_another_name_is_refused(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        shake_hands(folder, folder / "ca.crt", "evil.example.org")


def test_another_study_s_server_is_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    certificates.make_authority(other, "hearts")

    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(folder, other / "ca.crt", HOST)


def test_the_server_s_certificate_can_sign_nothing(folder: Path) -> None:
    server = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())

    def constraints(certificate: x509.Certificate) -> x509.Extension[x509.BasicConstraints]:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints)

    assert constraints(authority).critical
    assert (constraints(authority).value.ca, constraints(authority).value.path_length) == (True, 0)
    assert constraints(server).value.ca is False
    usage = server.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    purposes = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_private_keys_are_private_and_the_authority_s_is_never_overwritten(folder: Path) -> None:
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    before = (folder / "ca.key").read_bytes()

    with pytest.raises(FileExistsError):
        certificates.make_authority(folder, "hearts")

    assert (folder / "ca.key").read_bytes() == before


def test_a_renewed_certificate_is_another_of_the_same_authority(folder: Path) -> None:
    authority, before = (folder / "ca.crt").read_bytes(), (folder / "server.pem").read_bytes()

    certificates.make_server_certificate(folder, HOST)

    assert (folder / "server.pem").read_bytes() != before
    assert (folder / "ca.crt").read_bytes() == authority
    shake_hands(folder, folder / "ca.crt", HOST)


def test_a_good_certificate_is_not_renewed(folder: Path) -> None:
    assert certificates.why_renew(folder, HOST) == ""
    assert certificates.days_left(folder) in (364, 365)


def test_lifetimes_are_a_year_and_five(folder: Path) -> None:
    def lifetime(name: str) -> timedelta:
        certificate = x509.load_pem_x509_certificate((folder / name).read_bytes())
        return certificate.not_valid_after_utc - certificate.not_valid_before_utc

    assert lifetime("server.pem") - timedelta(days=365) <= timedelta(hours=1)
    assert lifetime("ca.crt") - timedelta(days=5 * 365) <= timedelta(hours=1)


NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.mark.parametrize(
    ("days", "warning"),
    [
        (0, ""),
        (365 - 31, ""),
        (365 - 30, ""),
        (365 - 29, "the server's certificate expires in 29 days: run `feddc coordinator down`"),
        (366, "the server's certificate has expired: run"),
        (4 * 365 + 1, "the study's certificate authority expires in 364 days: create a new study"),
    ],
)
def test_the_last_month_of_a_certificate_and_the_last_year_of_the_authority_are_warned_of(
    days: int, warning: str, tmp_path: Path
) -> None:
    certificates.make_authority(tmp_path, "hearts", NOW)
    certificates.make_server_certificate(tmp_path, HOST, NOW)

    said = certificates.expiry_warning(tmp_path, now=NOW + timedelta(days=days))

    assert said.startswith(warning) if warning else said == ""


def test_the_certificate_that_is_served_counts_not_the_renewed_one_in_the_folder(
    folder: Path,
) -> None:
    certificates.make_server_certificate(folder, HOST, NOW - timedelta(days=350, hours=-1))
    old = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    served = old.public_bytes(Encoding.DER)
    certificates.make_server_certificate(folder, HOST)

    assert certificates.days_left(folder, served) == 15
    assert "expires in 15 days" in certificates.expiry_warning(folder, served)
    assert certificates.expiry_warning(folder) == ""


def test_it_is_renewed_before_it_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_SERVER_DAYS", 60)
    certificates.make_server_certificate(folder, HOST)

    assert certificates.why_renew(folder, HOST) == "it expires in 59 days"


def test_it_is_renewed_when_the_address_has_changed(folder: Path) -> None:
    assert certificates.why_renew(folder, "new.example.org") == "it does not cover new.example.org"


def test_it_is_renewed_when_renewing_was_interrupted(folder: Path, tmp_path: Path) -> None:
    before = (folder / "server.pem").read_bytes()
    certificates.make_server_certificate(folder, HOST)
    (folder / "server.pem").write_bytes(before)  # as if only the key had been written

    assert certificates.why_renew(folder, HOST) == "its key does not match"


def test_it_never_outlives_its_authority(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_SERVER_DAYS", 365 * 20)
    certificates.make_server_certificate(folder, HOST)

    ends = [
        x509.load_pem_x509_certificate((folder / name).read_bytes()).not_valid_after_utc
        for name in ("server.pem", "ca.crt")
    ]
    assert ends[1] - ends[0] < timedelta(seconds=1)


@pytest.mark.parametrize("lost", ["ca.key", "ca.crt"])
def test_a_lost_authority_is_said_to_be_in_the_backup(lost: str, folder: Path) -> None:
    (folder / lost).unlink()

    with pytest.raises(certificates.CertificateError, match=f"{lost}.*backup"):
        certificates.make_server_certificate(folder, HOST)
