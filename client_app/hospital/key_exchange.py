"""The hospital's part in creating an experiment's keys: announce, exchange key shares, derive."""

import secrets

from client_app.state.experiment_store import ExperimentStore
from protocol.messages import ExchangeKeyShares, KeyShares, OpenKeyShares, Ready, RefusalCode
from protocol.sealing import membership
from protocol.sealing.bundle import BundleError, from_bundle, to_bundle
from protocol.sealing.keys import Identity, SealingKey
from protocol.sealing.membership import KEY_SHARE_BYTES, Announced, MembershipError
from protocol.secure_sum.seeds import PAIR_SEED_BYTES, derive_pair_key
from protocol.study.roster import Roster

from .agreement.agreed_experiment import AgreedExperiment
from .refusal import Refused


def announce(store: ExperimentStore, identity: Identity, name: str, roster: Roster) -> Announced:
    """Generate a sealing key for this generation of the experiment, and announce it."""
    key = SealingKey.generate()
    store.put("sealing-key", key.to_bytes())
    return membership.announce(identity, key, name=name, experiment=store.experiment, roster=roster)


def exchange_key_shares(
    request: ExchangeKeyShares,
    experiment: AgreedExperiment,
    identity: Identity,
    minimum_cohort: int,
    figures: bytes,
) -> KeyShares:
    """Check all members' announcements and seal a key share for each of them.

    `figures` are those that this hospital adds to secure sums, as one byte.

    A study begins with its whole roster. In later generations, members that have not pinned the new
    roster may be absent, as long as the policy's minimum takes part.
    """
    name, store, roster = experiment.hospital, experiment.store, experiment.roster
    key = _own_key(store)
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
    generation = membership.agreed_generation(
        announcements,
        experiment=request.experiment,
        descriptor=store.descriptor or b"",
        roster=roster,
    )
    key_share = secrets.token_bytes(KEY_SHARE_BYTES)
    store.put("announcements", request.payload)
    store.put("generation-digest", generation)
    store.put("key-share", key_share)
    others = [announced.name for announced in announcements if announced.name != name]
    pair_seeds = {other: secrets.token_bytes(PAIR_SEED_BYTES) for other in others}
    store.put("pair-seeds", to_bundle(pair_seeds))
    store.put("figures", to_bundle({name: figures}))
    sealed = membership.seal_key_shares(
        key_share,
        {other: pair_seeds[other] + figures for other in others},
        identity,
        name=name,
        experiment=request.experiment,
        generation=generation,
        announcements=announcements,
    )
    return KeyShares(payload=to_bundle(sealed))


def open_key_shares(request: OpenKeyShares, experiment: AgreedExperiment) -> Ready:
    """Open the other members' key shares and derive the member key."""
    name, store, roster = experiment.hospital, experiment.store, experiment.roster
    key = _own_key(store)
    generation, key_share = store.get("generation-digest"), store.get("key-share")
    if generation is None or key_share is None:
        raise Refused(RefusalCode.NOT_SET_UP, "key shares before announcements")
    try:
        members = set(store.announcements)
        opened = membership.open_key_shares(
            from_bundle(request.payload),
            key,
            name=name,
            experiment=request.experiment,
            generation=generation,
            roster=roster,
            members=members,
        )
        key_shares = {sender: share.key_share for sender, share in opened.items()}
        member_key = membership.derive_member_key(
            key_shares | {name: key_share}, roster=roster, generation=generation, members=members
        )
    except (BundleError, MembershipError) as error:
        raise Refused(RefusalCode.KEYS_REFUSED, str(error)) from error
    store.put("member-key", member_key)
    own_seeds = from_bundle(store.get("pair-seeds") or b"")
    pair_keys, figures = {}, from_bundle(store.get("figures") or b"")
    for other, share in opened.items():
        pair_seed, figures[other] = _split(share.pair_secret)
        pair_keys[other] = derive_pair_key({name: own_seeds[other], other: pair_seed}, generation)
    store.put("pair-keys", to_bundle(pair_keys))
    store.put("figures", to_bundle(figures))
    store.delete("pair-seeds")
    return Ready(confirmation=membership.confirmation(member_key).hex())


def _split(pair_secret: bytes) -> tuple[bytes, bytes]:
    return pair_secret[:PAIR_SEED_BYTES], pair_secret[PAIR_SEED_BYTES:]


def _own_key(store: ExperimentStore) -> SealingKey:
    key = store.sealing_key
    if key is None:
        raise Refused(RefusalCode.NOT_SET_UP, "no key was announced for this experiment")
    return key
