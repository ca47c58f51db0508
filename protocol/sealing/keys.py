"""Keys: long-lived identities that sign, and sealing keys for one experiment."""

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey

IDENTITY_BYTES = 32
SIGNATURE_BYTES = 64
_MLKEM_SEED, _MLKEM_PUBLIC, _X25519 = 64, 1184, 32
SEALING_KEY_BYTES = _MLKEM_PUBLIC + _X25519
_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = {0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8}


class InvalidKey(ValueError):
    """The bytes are not a valid key."""


@dataclass(frozen=True)
class Identity:
    """An Ed25519 identity. Its owner generates it, and the private key never leaves the owner."""

    _key: Ed25519PrivateKey = field(repr=False)

    @staticmethod
    def generate() -> "Identity":
        return Identity(Ed25519PrivateKey.generate())

    @staticmethod
    def from_bytes(data: bytes) -> "Identity":
        if len(data) != IDENTITY_BYTES:
            raise InvalidKey(f"an identity has {IDENTITY_BYTES} bytes, got {len(data)}")
        return Identity(Ed25519PrivateKey.from_private_bytes(data))

    def to_bytes(self) -> bytes:
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Sign `data` for one purpose; the signature is not valid for any other."""
        return self._key.sign(_purposed(purpose, data))


def is_identity(public: bytes) -> bool:
    """Return whether these bytes are a valid public identity.

    The eight points of small order are not: nobody has their private key, and anybody can forge a
    signature over any data that verifies under them.
    """
    y = int.from_bytes(public, "little") % 2**255 % _PRIME
    return len(public) == IDENTITY_BYTES and y not in _SMALL_ORDER


def verify(public: bytes, purpose: str, data: bytes, signature: bytes) -> bool:
    """Return whether `signature` is the identity's signature over `data` for this purpose."""
    if not is_identity(public):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signature, _purposed(purpose, data))
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class SealingKey:
    """A member's key pair for one experiment: ML-KEM-768 and X25519 combined.

    An attacker who breaks one of the two, with a quantum computer or through a flaw, cannot read
    envelopes.
    """

    private: MLKEM768X25519PrivateKey = field(repr=False)
    _mlkem: MLKEM768PrivateKey = field(repr=False)
    _x25519: X25519PrivateKey = field(repr=False)

    @staticmethod
    def generate() -> "SealingKey":
        return SealingKey._of(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())

    @staticmethod
    def from_bytes(data: bytes) -> "SealingKey":
        if len(data) != _MLKEM_SEED + _X25519:
            raise InvalidKey(f"a sealing key has {_MLKEM_SEED + _X25519} bytes, got {len(data)}")
        return SealingKey._of(
            MLKEM768PrivateKey.from_seed_bytes(data[:_MLKEM_SEED]),
            X25519PrivateKey.from_private_bytes(data[_MLKEM_SEED:]),
        )

    @staticmethod
    def _of(mlkem: MLKEM768PrivateKey, x25519: X25519PrivateKey) -> "SealingKey":
        return SealingKey(MLKEM768X25519PrivateKey(mlkem, x25519), mlkem, x25519)

    def to_bytes(self) -> bytes:
        return self._mlkem.private_bytes_raw() + self._x25519.private_bytes_raw()

    @property
    def public(self) -> bytes:
        mlkem = self._mlkem.public_key().public_bytes_raw()
        return mlkem + self._x25519.public_key().public_bytes_raw()


def sealing_public_key(data: bytes) -> MLKEM768X25519PublicKey:
    """Parse an announced public key; raise InvalidKey if it is not one."""
    if len(data) != SEALING_KEY_BYTES:
        raise InvalidKey(f"an announced key has {SEALING_KEY_BYTES} bytes, got {len(data)}")
    try:
        mlkem = MLKEM768PublicKey.from_public_bytes(data[:_MLKEM_PUBLIC])
        x25519 = X25519PublicKey.from_public_bytes(data[_MLKEM_PUBLIC:])
        # The exchange fails for a point of small order: here, and not at the first envelope.
        X25519PrivateKey.generate().exchange(x25519)
        return MLKEM768X25519PublicKey(mlkem, x25519)
    except ValueError as error:
        raise InvalidKey(f"not an announced key: {error}") from error


def _purposed(purpose: str, data: bytes) -> bytes:
    return f"FedDC {purpose} v1".encode() + b"\0" + data
