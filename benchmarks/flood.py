"""Time of an honest request at a real agent, beside the junk of a hostile courier.

The courier keeps hundreds of slow connections open and sends long, meaningless and repeated
requests as fast as it can. Meanwhile new requests of the coordinator's arrive, one a second.

    python -m benchmarks.flood [--seconds 20] [--json]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from client_app.connect.agent_client import AgentUnreachable, ask, health
from client_app.hospital_folder import HospitalFolder
from client_app.state.sqlite_store import SqliteStore
from protocol.message_bytes import decode_signed_reply, sign_request
from protocol.messages import Close, Hello, Refusal, RefusalCode
from protocol.sealing.keys import Identity
from server_app.study.study_folder import Study

from .support.processes import FEDDC, Processes, base_environment, wait_for
from .support.small_study import feddc, write_patients
from .support.study_setup import StudySetup

_NAMES = ("hospital-1", "hospital-2", "hospital-3")
_ADDRESS = {"study": "flood", "hospital": _NAMES[0]}
_START_SECONDS = 180.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    # Short: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="flood", dir="/tmp") as place:
        folder = Path(place)
        with Processes(folder) as processes:
            result = _measure(folder, processes, arguments.seconds)
    if arguments.json:
        print(json.dumps(result))
    else:
        print(
            f"honest requests: {result['honest_ms']} ms at worst, median {result['median_ms']} ms, "
            f"{result['quiet_ms']} ms without junk; {result['junk_requests']} junk requests left "
            f"{result['audit_lines']} audit lines ({result['audit_bytes']} bytes)"
        )


def _measure(folder: Path, processes: Processes, seconds: float) -> dict[str, object]:
    hospital, coordinator = _start_agent(folder, processes)
    path = str(hospital.path / "socket" / "agent.sock")
    quiet = [_ask(path, coordinator, f"quiet-{number}") for number in range(10)]
    lines = _audit_lines(hospital)
    request = folder / "request"
    request.write_bytes(sign_request(Hello(), coordinator, **_ADDRESS))
    courier = subprocess.Popen(  # noqa: S603 (our own code)
        [
            sys.executable,
            "-m",
            "benchmarks.support.hostile_courier",
            path,
            str(seconds),
            str(request),
        ],
        stdout=subprocess.PIPE,
        env=base_environment(),
    )
    try:
        beside: list[float] = []
        while courier.poll() is None:
            beside.append(_ask(path, coordinator, f"beside-{len(beside)}"))
            time.sleep(1)
        output, _ = courier.communicate()
    finally:
        courier.kill()
    beside.append(_ask(path, coordinator, "after"))
    written = _audit_lines(hospital)[len(lines) :]
    sent = json.loads(output)
    return {
        "honest_ms": round(max(beside)),
        "median_ms": round(statistics.median(beside)),
        "quiet_ms": round(statistics.median(quiet)),
        "honest_requests": len(beside),
        "junk_requests": sum(sent.values()),
        **{f"junk_{kind.replace(' ', '_')}": count for kind, count in sorted(sent.items())},
        "audit_lines": len(written) - len(beside),
        "audit_bytes": sum(map(len, written)),
        "log_bytes": (folder / "agent.log").stat().st_size,
        "seconds": seconds,
    }


def _start_agent(folder: Path, processes: Processes) -> tuple[HospitalFolder, Identity]:
    """Start a hospital's agent; return its folder and the coordinator's identity."""
    setup = StudySetup(folder, feddc)
    setup.create(_ADDRESS["study"], {})
    for number, name in enumerate(_NAMES):
        setup.enrol(name, lambda place, seed=number: write_patients(place, seed=seed))  # type: ignore[misc]
    setup.sign_roster()
    setup.join(_NAMES[0])
    hospital = HospitalFolder(setup.hospital(_NAMES[0]))
    processes.start("agent", [*FEDDC, "hospital", "serve", "--folder", hospital.path])
    path = str(hospital.path / "socket" / "agent.sock")
    wait_for(lambda: _answers(path), "the agent", _START_SECONDS)
    return hospital, Study.open(setup.study).identity()


def _answers(path: str) -> bool:
    try:
        return bool(health(path))
    except AgentUnreachable:
        return False


def _ask(path: str, coordinator: Identity, experiment: str) -> float:
    """Send a new request of the coordinator's; return the milliseconds until it is answered."""
    request = sign_request(Close(experiment=experiment), coordinator, **_ADDRESS)
    began = time.perf_counter()
    reply = decode_signed_reply(ask(path, request))
    taken = time.perf_counter() - began
    if not isinstance(reply, Refusal) or reply.code is not RefusalCode.UNKNOWN_EXPERIMENT:
        raise RuntimeError(f"unexpected reply: {reply}")
    return 1000 * taken


def _audit_lines(hospital: HospitalFolder) -> list[bytes]:
    store = SqliteStore.for_reading(hospital.store_file)
    try:
        return store.audit_lines()
    finally:
        store.close()


if __name__ == "__main__":
    main()
