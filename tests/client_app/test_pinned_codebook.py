"""A study's codebook is shown and pinned by `join`; a changed one starts no agent."""

import stat
from pathlib import Path

import pytest

from client_app.configuration import Configuration
from client_app.hospital_data import load_partition
from learning.data import DataError
from protocol.codebook import Codebook
from protocol.sealing.keys import Identity
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled

CODEBOOK = Codebook.from_toml(
    """
title = "Hearts"
classes = ["1", "0"]
label = "result"

[[columns]]
name = "a"
kind = "number"
range = [0, 4]
centre = 2
scale = 2

[[columns]]
name = "kind"
kind = "category"
levels = ["zero", "one"]
"""
)
LOCAL = """
[data.columns.result]
column = "label"

[data.columns.kind]
column = "c"
levels = { "0" = "zero", "1" = "one" }
"""


def _offer(hospital: Enrolled, signer: Identity | None = None) -> Path:
    """Put roster and codebook into one folder, as the coordinator sends them."""
    folder = hospital.folder.path.parent / "for-hospitals"
    folder.mkdir()
    (folder / "roster").write_bytes(hospital.roster().signed(hospital.coordinator))
    (folder / "codebook").write_bytes(CODEBOOK.signed(signer or hospital.coordinator))
    return folder / "roster"


def _with_local_names(hospital: Enrolled) -> Configuration:
    text = hospital.folder.configuration.read_text()
    before, found, after = text.partition("\n[policy]")
    assert found
    hospital.folder.configuration.write_text(before + LOCAL + found + after)
    return Configuration.read(hospital.folder.configuration)


def test_join_shows_the_codebook_asks_and_pins_it(enrolled: Enrolled) -> None:
    offered = _offer(enrolled)
    declined = feddc("join", offered, "--folder", enrolled.folder.path, answer="n\n")
    assert declined.exit_code == 1
    assert enrolled.folder.codebook(enrolled.roster()) is None

    done = feddc("join", offered, "--folder", enrolled.folder.path, answer="y\n")
    assert done.exit_code == 0, done.output
    assert "codebook     Hearts" in done.output
    assert "classes      1, 0" in done.output
    assert "(value - 2) / 2" in done.output
    assert f"    {CODEBOOK.fingerprint}" in done.output
    assert enrolled.folder.codebook(enrolled.roster()) == CODEBOOK
    assert stat.S_IMODE(enrolled.folder.codebook_file.stat().st_mode) == 0o600
    again = feddc("join", offered, "--folder", enrolled.folder.path)
    assert again.exit_code == 0, again.output


def test_join_pins_without_asking_only_what_has_the_fingerprint(enrolled: Enrolled) -> None:
    offered = _offer(enrolled)
    arguments = ("join", offered, "--folder", enrolled.folder.path, "--codebook-fingerprint")
    wrong = feddc(*arguments, enrolled.roster().fingerprint)
    assert wrong.exit_code == 1
    assert f"the codebook's fingerprint is {CODEBOOK.fingerprint}" in wrong.stderr
    assert enrolled.folder.codebook(enrolled.roster()) is None
    assert feddc(*arguments, CODEBOOK.fingerprint).exit_code == 0
    assert enrolled.folder.codebook(enrolled.roster()) == CODEBOOK


def test_a_codebook_of_somebody_else_is_refused(enrolled: Enrolled) -> None:
    offered = _offer(enrolled, signer=Identity.generate())
    done = feddc("join", offered, "--folder", enrolled.folder.path, answer="y\ny\n")
    assert done.exit_code == 1
    assert "not signed by the study's coordinator, or changed after it was signed" in done.stderr
    assert not enrolled.folder.codebook_file.exists()


def test_no_agent_starts_with_a_codebook_that_was_edited(enrolled: Enrolled) -> None:
    signed = CODEBOOK.signed(enrolled.coordinator)
    enrolled.folder.pin_codebook(signed.replace(b'"centre":2.0', b'"centre":1.0'))
    for command in ("check", "serve"):
        done = feddc(command, "--folder", enrolled.folder.path)
        assert done.exit_code == (1 if command == "check" else 2)
        assert "changed after it was signed" in done.output


def test_the_data_are_read_by_the_pinned_codebook_and_local_names(enrolled: Enrolled) -> None:
    configuration = _with_local_names(enrolled)
    partition = load_partition(enrolled.folder, configuration, CODEBOOK)
    assert partition.classes == ("1", "0")
    assert partition.train.features.shape[1:] == CODEBOOK.shape
    by_row = {tuple(row) for row in partition.train.features.tolist()}
    # a is 0 … 6, clipped to 4; c is 0, 1 or 2, and 2 is no level.
    values = [(min(n % 7, 4) - 2) / 2 for n in range(60)]
    kinds = [((1, 0, 0), (0, 1, 0), (0, 0, 1))[n % 3] for n in range(60)]
    assert by_row <= {(v, 0.0, *map(float, k), 0.0) for v, k in zip(values, kinds, strict=True)}


def test_who_is_held_out_is_recorded_when_the_agent_loads_the_data(enrolled: Enrolled) -> None:
    configuration = _with_local_names(enrolled)
    load_partition(enrolled.folder, configuration, CODEBOOK)
    looked = enrolled.folder.held_out_file.read_bytes()
    assert b'"recorded":{}' in looked  # `check` only looks
    first = load_partition(enrolled.folder, configuration, CODEBOOK, record=True)
    recorded = enrolled.folder.held_out_file.read_bytes()
    assert recorded.count(b"true") == len(first.held_out)
    assert recorded.count(b"false") == len(first.train)

    enrolled.set("test-fraction", "0.9")
    other = Configuration.read(enrolled.folder.configuration)
    again = load_partition(enrolled.folder, other, CODEBOOK, record=True)
    assert len(again.held_out) == len(first.held_out)

    enrolled.folder.held_out_file.write_bytes(recorded[:-5])
    done = feddc("check", "--folder", enrolled.folder.path)
    assert done.exit_code == 2
    assert "damaged" in done.output


def test_without_a_codebook_the_classes_must_be_named(enrolled: Enrolled) -> None:
    enrolled.set("classes", "[]")
    configuration = Configuration.read(enrolled.folder.configuration)
    with pytest.raises(DataError, match="the study has no codebook, so"):
        load_partition(enrolled.folder, configuration, None)
