"""The hospital's part in making an experiment's keys: announce, exchange shares, derive."""

import hashlib
import secrets

from client_app.state.experiment_store import Notebook
from protocol import membership
from protocol.bundle import BundleError, from_bundle, to_bundle
from protocol.keys import Identity, SealingKey
from protocol.membership import KEY_SHARE_BYTES, Announced, MembershipError
from protocol.messages import ExchangeKeyShares, KeyShares, OpenKeyShares, Ready, RefusalCode
from protocol.study.roster import Roster

from .refusal import Refused


def announce(notebook: Notebook, identity: Identity, name: str, roster: Roster) -> Announced:
    """Make a key for this experiment and announce it; one key per identity and experiment."""
    key = SealingKey.generate()
    notebook.write("sealing-key", key.to_bytes())
    return membership.announce(
        identity, key, name=name, experiment=notebook.experiment, roster=roster
    )


def exchange_key_shares(
    request: ExchangeKeyShares,
    notebook: Notebook,
    identity: Identity,
    name: str,
    roster: Roster,
    minimum_cohort: int,
) -> KeyShares:
    """Check everyone's announcements and seal a share for each of them.

    A study begins with its whole roster. Members that have not pinned a later roster may stay out
    of its generation, as long as the policy's minimum takes part.
    """
    key = _own_key(notebook)
    least = minimum_cohort if roster.generation > 1 else None
    try:
        pieces = from_bundle(request.payload)
        announcements = [Announced.from_bytes(who, data) for who, data in pieces.items()]
        membership.check_announcements(
            announcements, experiment=request.experiment, roster=roster, least=least
        )
    except (BundleError, MembershipError) as error:
        raise Refused(RefusalCode.KEYS_REFUSED, str(error)) from error
    own = next((a.sealing_key for a in announcements if a.name == name), None)
    if own != key.public:
        raise Refused(RefusalCode.KEYS_REFUSED, "not the key announced here")
    # The terms too: hospitals that were shown different descriptors make keys that don't match.
    terms = f"{request.experiment}/{hashlib.sha256(notebook.descriptor or b'').hexdigest()}"
    generation = membership.generation_digest(announcements, experiment=terms, roster=roster)
    share = secrets.token_bytes(KEY_SHARE_BYTES)
    notebook.write("announcements", request.payload)
    notebook.write("generation-digest", generation)
    notebook.write("key-share", share)
    sealed = membership.seal_key_shares(
        share,
        identity,
        name=name,
        experiment=request.experiment,
        generation=generation,
        announcements=announcements,
    )
    return KeyShares(payload=to_bundle(sealed))


def open_key_shares(request: OpenKeyShares, notebook: Notebook, name: str, roster: Roster) -> Ready:
    """Open the others' shares and derive the member key."""
    key, generation, share = (
        _own_key(notebook),
        notebook.page("generation-digest"),
        notebook.page("key-share"),
    )
    if generation is None or share is None:
        raise Refused(RefusalCode.NOT_SET_UP, "shares before announcements")
    try:
        members = set(notebook.announcements)
        shares = membership.open_key_shares(
            from_bundle(request.payload),
            key,
            name=name,
            experiment=request.experiment,
            generation=generation,
            roster=roster,
            members=members,
        )
        member_key = membership.derive_member_key(
            shares | {name: share}, roster=roster, generation=generation, members=members
        )
    except (BundleError, MembershipError) as error:
        raise Refused(RefusalCode.KEYS_REFUSED, str(error)) from error
    notebook.write("member-key", member_key)
    return Ready(confirmation=membership.confirmation(member_key).hex())


def _own_key(notebook: Notebook) -> SealingKey:
    key = notebook.sealing_key
    if key is None:
        raise Refused(RefusalCode.NOT_SET_UP, "no key was announced for this experiment")
    return key
