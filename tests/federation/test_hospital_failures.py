"""What happens to hospitals, happens here to real processes: the experiment goes on."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.federation.failures import VICTIM, answered_after, ever_missing, missing_in, options
from tests.federation.federation import (
    Federation,
    assert_chains_accounted_for,
    assert_same_model,
    needs_nginx,
    wait_for,
)

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]

# A hospital that is missing in the last hand-over before an aggregation takes a second model with
# it, the one it should have handed on. Of four, two are too few for a secure sum.
PLAIN: dict[str, object] = {"averaging": "plain"}

# Long enough legs to be killed in: some seconds of training each.
HEAVY = {"rounds": 900, "daisy_period": 100, "aggregation_period": 300}
HEAVY_MODEL = {"model_options": '{"hidden": [300, 300]}'}


# --- a hospital's SuperNode -----------------------------------------------------------------------


def test_a_supernode_killed_in_a_hand_over_and_in_an_aggregation_comes_back(
    study: Federation,
) -> None:
    run = study.begin(*options(rounds=18))
    study.wait_for_leg(1)
    kill_at_work(study)
    wait_for(lambda: answered_after(study, 2, VICTIM) or None, "an answer after the hand-over", 600)
    last = max(event["leg"] for event in study.events("leg"))
    aggregation = last + 3 - last % 3
    study.wait_for_leg(aggregation - 1)
    kill_at_work(study)
    outcome = study.ended(run)
    assert outcome.code == 0, outcome.errors
    assert ever_missing(study) <= {VICTIM}
    assert answered_after(study, aggregation, VICTIM)
    assert_chains_accounted_for(study)


def kill_at_work(study: Federation) -> None:
    """Kill a SuperNode whose courier waits for the agent, and start it again."""
    study.signal("agent", VICTIM, signal.SIGSTOP)
    wait_for(lambda: study.courier_is_at_work(VICTIM) or None, "courier")
    study.kill("supernode", VICTIM)
    study.signal("agent", VICTIM, signal.SIGCONT)
    study.start("supernode", VICTIM)


# --- a hospital's agent ---------------------------------------------------------------------------


def test_an_agent_killed_while_it_trains_repeats_the_leg(study: Federation, tmp_path: Path) -> None:
    changes = HEAVY | HEAVY_MODEL
    run = study.begin(*options(**changes, leg_timeout=120.0))
    study.wait_for_leg(1)
    before = cpu_seconds(study, "agent", VICTIM)
    wait_for(lambda: cpu_seconds(study, "agent", VICTIM) > before + 0.3 or None, "training")
    study.kill("agent", VICTIM)
    study.start("agent", VICTIM)
    outcome = study.ended(run)
    assert outcome.code == 0, outcome.errors
    # The courier waited for the agent to come back: nobody was missing, and nothing is different.
    assert missing_in(study) == {}
    assert_same_model(study, tmp_path / "simulated", **changes)


def cpu_seconds(study: Federation, kind: str, name: str) -> float:
    pid = study.processes[kind, name].pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_an_agent_that_hangs_holds_nobody_up_for_long(study: Federation) -> None:
    run = study.begin(*options(rounds=6, **PLAIN))
    study.wait_for_leg(1)
    study.signal("agent", VICTIM, signal.SIGSTOP)
    outcome = study.ended(run)
    assert outcome.code == 0, outcome.errors
    assert ever_missing(study) == {VICTIM}
    # The leg's whole time is waited for once; then it is known to be overdue.
    waited = [event["seconds"] for event in study.events("leg")]
    assert sum(seconds >= 20 for seconds in waited) == 1
    assert outcome.result["lost_chains"] >= 1
    assert_chains_accounted_for(study)


@pytest.mark.long
def test_a_late_answer_is_used(study: Federation) -> None:
    run = study.begin(*options(rounds=8, aggregation_period=8))
    study.wait_for_leg(1)
    study.signal("agent", VICTIM, signal.SIGSTOP)
    first = wait_for(lambda: min(missing_in(study), default=None), "leg without it")
    study.signal("agent", VICTIM, signal.SIGCONT)
    outcome = study.ended(run)
    assert outcome.code == 0, outcome.errors
    assert answered_after(study, first, VICTIM)
    # Its chain went on, with rounds missed: all four models are in the aggregate.
    assert outcome.result["missed_rounds"] >= 1
    assert_chains_accounted_for(study)


def test_a_hospital_that_answers_garbage_is_named_and_left_out(study: Federation) -> None:
    run = study.begin(*options(rounds=6, **PLAIN))
    study.wait_for_leg(1)
    study.kill("agent", VICTIM)
    path = study.hospital(VICTIM) / "socket" / "agent.sock"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    code = (
        "import socket,sys\n"
        "listener = socket.socket(fileno=int(sys.argv[1]))\n"
        "while True:\n"
        "    connection, _ = listener.accept()\n"
        "    connection.recv(65536)\n"
        "    body = b'\\x80\\x04garbage' * 100\n"
        "    head = b'HTTP/1.1 200 OK\\r\\nContent-Type: application/octet-stream\\r\\n'\n"
        "    head += b'Content-Length: %d\\r\\nConnection: close\\r\\n\\r\\n' % len(body)\n"
        "    connection.sendall(head + body)\n"
        "    connection.close()\n"
    )
    garbler = subprocess.Popen(
        [sys.executable, "-c", code, str(listener.fileno())], pass_fds=[listener.fileno()]
    )
    try:
        outcome = study.ended(run)
    finally:
        garbler.kill()
        garbler.wait()
        listener.close()
        path.unlink(missing_ok=True)
    assert outcome.code == 0, outcome.errors
    absences = missing_in(study)
    assert ever_missing(study) == {VICTIM}
    assert any("has not signed it as its answer" in why[VICTIM] for why in absences.values())
    assert_chains_accounted_for(study)


# --- hospitals that are gone ----------------------------------------------------------------------


@pytest.mark.long
def test_a_hospital_that_is_gone_for_good_is_done_without(study: Federation) -> None:
    run = study.begin(*options(rounds=6, **PLAIN))
    study.wait_for_leg(1)
    study.kill("supernode", VICTIM)
    study.kill("agent", VICTIM)
    outcome = study.ended(run)
    assert outcome.code == 0, outcome.errors
    assert ever_missing(study) == {VICTIM}
    assert missing_in(study)[6].keys() == {VICTIM}
    assert outcome.result["lost_chains"] >= 1
    assert_chains_accounted_for(study)


def test_below_the_quorum_a_run_waits_fails_and_can_be_resumed(study: Federation) -> None:
    gone = study.names[1:]
    run = study.begin(*options(quorum_wait=5.0, **PLAIN))
    study.wait_for_leg(1)
    for name in gone:
        study.kill("supernode", name)
        study.kill("agent", name)
    outcome = study.ended(run)
    assert outcome.code == 1
    assert outcome.result["status"] == "failed"
    assert "hospitals answered, 2 are needed" in outcome.result["reason"]
    for name in gone:
        assert name in outcome.result["reason"]
    assert study.events("waiting")
    assert not (study.experiment() / "summary.json").exists()
    assert study.events("end")[-1]["status"] == "failed"

    study.revive()
    outcome = study.run(command="resume")
    assert outcome.code == 0, outcome.errors
    assert_chains_accounted_for(study)
