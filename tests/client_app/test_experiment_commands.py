"""`feddc hospital experiments`, `approve` and `reject`, beside an agent that runs."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from client_app.connect.agent_client import ask
from client_app.state.decisions import DecisionFile, DecisionsError
from operation.locks import ProcessLock
from protocol.approval import approval_fingerprint
from protocol.descriptor import Descriptor
from protocol.message_bytes import decode_signed_reply, sign_request
from protocol.messages import Announcement, Refusal, RefusalCode, SetUp
from tests.client_app.commands import feddc
from tests.client_app.conftest import ROOT, Agent, Enrolled

Serve = Callable[[Enrolled], AbstractContextManager[Agent]]
WAITING, REJECTED = RefusalCode.WAITING_FOR_APPROVAL, RefusalCode.REJECTED


class Site:
    """A hospital whose operator decides, with its agent running and a coordinator that asks."""

    def __init__(self, hospital: Enrolled, agent: Agent) -> None:
        self.hospital, self.agent = hospital, agent

    def descriptor(self, experiment: str, **changes: Any) -> Descriptor:
        fields: dict[str, Any] = {
            "experiment": experiment,
            "rounds": 20,
            "daisy_period": 1,
            "aggregation_period": 5,
            "init": "own",
            "shape": (3,),
            "classes": 2,
            "training": {"model": "mlp", "model-options": '{"hidden": [4]}', "batch-size": 4},
            "training_seed": bytes(32),
            "sealed": True,
            "averaging": "secure",
            "roster": self.hospital.roster().digest,
        }
        return Descriptor(**fields | changes)

    def ask(self, experiment: str, **changes: Any) -> RefusalCode | None:
        descriptor = self.descriptor(experiment, **changes)
        request = SetUp(experiment=experiment, payload=descriptor.to_bytes())
        coordinator = self.hospital.coordinator
        data = sign_request(request, coordinator, study="hearts", hospital="St Mary")
        reply = decode_signed_reply(ask(str(self.agent.socket), data))
        if isinstance(reply, Refusal):
            return reply.code
        assert isinstance(reply, Announcement)
        return None

    def feddc(self, *arguments: str, answer: str = "") -> Any:
        return feddc(*arguments, "--folder", self.hospital.folder.path, answer=answer)

    def states(self) -> dict[str, str]:
        listed = json.loads(self.feddc("experiments", "--json").stdout)
        return {one["experiment"]: one["state"] for one in listed}

    def fingerprint(self, experiment: str, **changes: Any) -> str:
        return approval_fingerprint(self.descriptor(experiment, **changes), self.hospital.roster())


@pytest.fixture(scope="module")
def site(enrol: Callable[[], Enrolled], serve: Serve) -> Any:
    hospital = enrol()
    hospital.set("approval", '"each"')
    with serve(hospital) as agent:
        yield Site(hospital, agent)


def test_an_operator_approves_while_the_agent_runs(site: Site) -> None:
    assert site.ask("e1") is WAITING
    assert site.states()["e1"] == "waiting"
    assert "e1 needs your approval" in site.agent.log

    done = site.feddc("approve", "e1", answer="y\n")

    assert done.exit_code == 0
    assert "e1: waits for your approval" in done.stdout
    assert "Approve this experiment?" in done.stdout
    assert site.states()["e1"] == "approved"
    assert site.ask("e1") is None
    assert site.states()["e1"] == "running"


def test_the_list_says_in_plain_words_what_is_asked(site: Site) -> None:
    site.ask("plain")
    text = site.feddc("experiments").stdout
    (shown,) = [part for part in text.split("\n\n") if part.startswith("plain: ")]
    facts = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in shown.splitlines()[1:])
    assert facts["fingerprint"] == site.fingerprint("plain")
    assert facts["study"] == "hearts, 3 members"
    assert re.fullmatch(r"([A-Z2-7]{4} ){7}[A-Z2-7]{4}", facts["coordinator"])
    # 3 inputs, a hidden layer of 4, 2 classes
    assert facts["model"] == f'mlp {{"hidden": [4]}}: {3 * 4 + 4 + 4 * 2 + 2} parameters'
    assert facts["rounds"] == "20, in 20 legs"
    assert facts["hand-overs"].startswith("16: your model leaves sealed for one other member")
    assert facts["aggregations"] == (
        "4: the coordinator learns the sum of at least 3 members' models, not yours"
    )
    assert facts["privacy"].startswith("no noise: records may be reconstructed")
    assert facts["first model"] == "each hospital makes its own"
    assert "waiting: `feddc hospital approve ID`" in text


def test_nothing_is_decided_without_a_confirmation(site: Site) -> None:
    site.ask("asked")
    for answer in ("n\n", ""):
        assert site.feddc("approve", "asked", answer=answer).exit_code == 1
        assert site.feddc("reject", "asked", answer=answer).exit_code == 1
    assert site.states()["asked"] == "waiting"


def test_a_script_confirms_with_the_fingerprint_or_with_yes(site: Site) -> None:
    site.ask("scripted")
    wrong = site.feddc("approve", "scripted", "--fingerprint", site.fingerprint("other"))
    assert wrong.exit_code == 2
    assert "nothing was decided" in wrong.stderr
    assert site.states()["scripted"] == "waiting"
    right = site.fingerprint("scripted").replace(" ", "").lower()
    assert site.feddc("reject", "scripted", "--fingerprint", right).exit_code == 0
    assert site.ask("scripted") is REJECTED
    assert site.states()["scripted"] == "rejected"
    assert site.feddc("approve", "scripted", "--yes").exit_code == 0
    assert site.ask("scripted") is None


def test_two_experiments_of_one_id_are_told_apart_by_their_fingerprints(site: Site) -> None:
    """A coordinator must not get another experiment approved than the one that was reviewed."""
    site.ask("twice")
    site.ask("twice", rounds=99_999)
    unclear = site.feddc("approve", "twice", "--yes")
    assert unclear.exit_code == 2
    assert "2 different experiments are called twice" in unclear.stderr
    chosen = site.fingerprint("twice")
    assert site.feddc("approve", "twice", "--fingerprint", chosen).exit_code == 0
    assert site.ask("twice", rounds=99_999) is WAITING
    assert site.ask("twice") is None


def test_an_unknown_experiment_can_not_be_approved(site: Site) -> None:
    done = site.feddc("approve", "e99", "--yes")
    assert done.exit_code == 2
    assert "the coordinator has asked for no experiment 'e99'" in done.stderr


def test_check_names_what_waits(site: Site) -> None:
    site.ask("checked")
    text = site.feddc("check").stdout
    assert re.search(r"! experiments: waiting for your approval: .*checked", text)
    assert "`feddc hospital experiments`" in text


def test_the_coordinators_text_adds_no_line(site: Site) -> None:
    training = {"model": "mlp", "model-options": '{"hidden":\n\n[4]}', "batch-size": 4}
    assert site.ask("lines", training=training) is WAITING
    text = site.feddc("experiments").stdout
    (shown,) = [part for part in text.split("\n\n") if part.startswith("lines: ")]
    assert r'mlp {"hidden":\n\n[4]}: 26 parameters' in shown


@pytest.mark.slow
def test_decisions_are_for_the_agents_user_alone_and_survive_its_restart(
    enrolled: Enrolled, serve: Serve
) -> None:
    enrolled.set("approval", '"each"')
    with serve(enrolled) as agent:
        site = Site(enrolled, agent)
        site.ask("e1")
        site.ask("e2")
        command = [sys.executable, "-m", "operation.cli", "hospital", "approve", "e1", "--yes"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, "--folder", str(enrolled.folder.path)],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    file = enrolled.folder.decisions_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.parent == enrolled.folder.state
    with serve(enrolled) as agent:
        assert "experiment e2 waits for your approval" in agent.log
        again = Site(enrolled, agent)
        assert again.ask("e1") is None
        assert again.ask("e2") is WAITING
        assert "✗" not in again.feddc("check").stdout


def test_reset_takes_approvals_back(enrolled: Enrolled) -> None:
    decisions = DecisionFile(enrolled.folder.decisions_file)
    decisions.record("e1", "ABCD", "approved")
    done = feddc("reset", "--yes", "--folder", enrolled.folder.path)
    assert done.exit_code == 0, done.output
    assert decisions.get("ABCD") is None


def test_two_commands_do_not_overwrite_each_others_decision(tmp_path: Path) -> None:
    file = tmp_path / "decisions.json"
    lock = ProcessLock(file.with_suffix(".lock"))
    lock.acquire("process 4711")
    with pytest.raises(DecisionsError, match="process 4711, which decides on an experiment"):
        DecisionFile(file).record("e1", "ABCD", "approved")
    lock.release()
    DecisionFile(file).record("e1", "ABCD", "approved")
    DecisionFile(file).record("e2", "EFGH", "rejected")
    assert DecisionFile(file).get("ABCD") == "approved"


def test_a_damaged_file_of_decisions_approves_nothing_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "decisions.json"
    decisions = DecisionFile(file)
    decisions.record("e1", "ABCD", "approved")
    assert decisions.get("ABCD") == "approved"
    file.write_bytes(file.read_bytes()[:-5])
    assert decisions.get("ABCD") is None
