"""A user's ClientApp with the sealing mod: the same result, and no handed-over model readable."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg, Result

from client_app.sealing_mod import sealing_mod
from client_app.site_keys import Site, SiteKeyError, make_key, make_roster
from protocol.sealing.sealed_arrays import ENVELOPE, RECORD, is_sealed
from strategies import FedDC
from tests.strategies.plain.small_app import FIRST, WatchedGrid, make_app, record, round_of

NODES = 5


class SealedGrid(WatchedGrid):
    """Every node has its own key file and the pinned roster; `tamper` may change what is sent."""

    def __init__(self, folder: Path, nodes: int = NODES) -> None:
        super().__init__(make_app(mods=[sealing_mod]), nodes)
        cards = []
        for position, context in enumerate(self.contexts):
            private, card = make_key(f"site {position}", folder / str(position))
            cards.append(card)
            context.node_config["feddc-key"] = str(private)
            context.node_config["feddc-roster"] = str(folder / "roster.json")
        make_roster(cards, folder / "roster.json")
        self.tamper: Callable[[Message], None] = lambda message: None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        changed = list(messages)
        for message in changed:
            self.tamper(message)
        return super().push_messages(changed)


def start(grid: WatchedGrid, rounds: int = 8, **arguments: Any) -> Result:
    strategy = FedDC(FedAvg(), aggregation_period=4, seed=3, **arguments)
    return strategy.start(grid, record(FIRST), num_rounds=rounds)


def models_sent(grid: WatchedGrid) -> dict[int, list[ArrayRecord]]:
    """Return what was sent in each round, by round."""
    found: dict[int, list[ArrayRecord]] = {}
    for message in grid.sent:
        if "arrays" in message.content.array_records and message.metadata.message_type == "train":
            found.setdefault(round_of(message), []).append(message.content.array_records["arrays"])
    return found


def test_the_parameters_are_those_of_an_unsealed_run(tmp_path: Path) -> None:
    sealed = start(SealedGrid(tmp_path), seal_hand_overs=True).arrays
    unsealed = start(WatchedGrid(make_app(), NODES)).arrays
    assert list(sealed) == list(unsealed)
    for name in sealed:
        np.testing.assert_array_equal(sealed[name].numpy(), unsealed[name].numpy())
        assert sealed[name].dtype == unsealed[name].dtype


def test_no_array_of_a_handed_over_model_passes_the_grid(tmp_path: Path) -> None:
    """A canary: the readable run's models are searched for in everything the sealed one sends."""
    readable, sealed = WatchedGrid(make_app(), NODES), SealedGrid(tmp_path)
    start(readable)
    start(sealed, seal_hand_overs=True)
    canaries = {
        arrays["w"].numpy().tobytes()
        for server_round in (2, 3, 4, 6, 7, 8)
        for arrays in models_sent(readable)[server_round]
    }
    assert len(canaries) > 20
    passed = sealed.sent + [reply for reply in sealed.replies if not is_aggregated(reply)]
    for message in passed:
        for arrays in message.content.array_records.values():
            for array in arrays.values():
                assert not any(canary in array.numpy().tobytes() for canary in canaries)
    kinds = {r: {is_sealed(a) for a in models} for r, models in models_sent(sealed).items()}
    assert kinds == {r: {r not in (1, 5)} for r in range(1, 9)}


def is_aggregated(reply: Message) -> bool:
    return any("w" in arrays for arrays in reply.content.array_records.values())


def test_models_that_stay_are_sealed_too(tmp_path: Path) -> None:
    grid = SealedGrid(tmp_path)
    result = start(grid, seal_hand_overs=True, daisy_period=2)
    plain = start(WatchedGrid(make_app(), NODES), daisy_period=2)
    np.testing.assert_array_equal(result.arrays["w"].numpy(), plain.arrays["w"].numpy())
    assert all(is_sealed(a) for r in (2, 3, 4) for a in models_sent(grid)[r])


def envelope_in(message: Message, server_round: int, node: int) -> ArrayRecord | None:
    if message.metadata.dst_node_id != node or "arrays" not in message.content.array_records:
        return None
    arrays = message.content.array_records["arrays"]
    return arrays if is_sealed(arrays) and round_of(message) == server_round else None


@pytest.mark.parametrize("change", ["altered", "swapped", "replayed", "moved to another round"])
def test_a_changed_envelope_is_refused(
    change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = SealedGrid(tmp_path)
    kept: list[bytes] = []

    def tamper(message: Message) -> None:
        if change == "replayed":
            # Node 100 gets again what it opened a round before, with that round's number.
            if (arrays := envelope_in(message, 2, 100)) is not None:
                kept.append(arrays[ENVELOPE].numpy().tobytes())
            if (arrays := envelope_in(message, 3, 100)) is not None:
                put(arrays, kept[0])
                message.content.config_records[RECORD]["sealed-in"] = 1
        elif change == "altered" and (arrays := envelope_in(message, 3, 100)) is not None:
            data = bytearray(arrays[ENVELOPE].numpy().tobytes())
            data[-1] ^= 1
            put(arrays, bytes(data))
        elif change == "swapped":
            if (arrays := envelope_in(message, 3, 100)) is not None:
                kept.append(arrays[ENVELOPE].numpy().tobytes())
            if (arrays := envelope_in(message, 3, 101)) is not None:
                put(arrays, kept[0])
        elif change.startswith("moved") and envelope_in(message, 3, 100) is not None:
            message.content.config_records[RECORD]["sealed-in"] = 1

    grid.tamper = tamper
    start(grid, seal_hand_overs=True)
    victim = 101 if change == "swapped" else 100
    assert f"round 3: node {victim} did not train: error 2" in caplog.text
    assert "1 chain(s) were lost" in caplog.text
    assert ("opened before" in caplog.text) == (change == "replayed")


def put(arrays: ArrayRecord, data: bytes) -> None:
    from protocol.sealing.sealed_arrays import to_envelope_record

    arrays[ENVELOPE] = to_envelope_record(data)[ENVELOPE]


def test_a_recipient_that_is_not_on_the_sites_roster_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = SealedGrid(tmp_path)

    def tamper(message: Message) -> None:
        request = message.content.config_records.get(RECORD, ConfigRecord())
        if request.get("round") == 2 and message.metadata.dst_node_id == 100:
            request["recipient"] = "coordinator"

    grid.tamper = tamper
    start(grid, seal_hand_overs=True)
    assert "node 100 did not train: error 2: 'coordinator' is not on this site's roster" in (
        caplog.text
    )


def test_a_client_app_without_the_mod_is_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"node 100 gave no name .* mods=\[sealing_mod\]"):
        start(WatchedGrid(make_app(), NODES), seal_hand_overs=True)


def test_without_sealing_the_mod_does_nothing(tmp_path: Path) -> None:
    grid = SealedGrid(tmp_path)
    plain = start(WatchedGrid(make_app(), NODES))
    np.testing.assert_array_equal(start(grid).arrays["w"].numpy(), plain.arrays["w"].numpy())


# --- key files ------------------------------------------------------------------------------------


def test_a_roster_that_lists_another_key_is_refused(tmp_path: Path) -> None:
    _, north = make_key("north", tmp_path / "north")
    private, _ = make_key("north", tmp_path / "other north")
    _, south = make_key("south", tmp_path / "south")
    make_roster([north, south], tmp_path / "roster")
    with pytest.raises(SiteKeyError, match="does not list 'north' with the key of"):
        Site.load(private, tmp_path / "roster")


def test_secret_files_are_for_their_owner_only_and_never_overwritten(tmp_path: Path) -> None:
    private, north = make_key("north", tmp_path / "n")
    _, south = make_key("south", tmp_path / "s")
    make_roster([north, south], tmp_path / "roster")
    for path in (private, tmp_path / "roster"):
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SiteKeyError, match="exists"):
        make_key("north", tmp_path / "n")
    with pytest.raises(SiteKeyError, match="exists"):
        make_roster([north, south], tmp_path / "roster")
    with pytest.raises(SiteKeyError, match="two cards name 'north'"):
        make_roster([north, north], tmp_path / "second")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', "\x00", '{"version": 2}'])
def test_a_damaged_file_is_refused_by_name(text: str, tmp_path: Path) -> None:
    private, card = make_key("north", tmp_path / "n")
    bad = tmp_path / "bad"
    bad.write_text(text)
    for call in (lambda: Site.load(private, bad), lambda: make_roster([bad, card], tmp_path / "r")):
        with pytest.raises(SiteKeyError, match="bad"):
            call()
