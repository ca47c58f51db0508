"""Registration of the members' SuperNodes, by their transport keys: no others may connect."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from operation.flower.control_api import ControlApi, RequestError, explain, is_up

from .study_folder import Study, StudyError
from .study_members import enrolled

_START_SECONDS = 90.0


class NotUp(StudyError):
    """The SuperLink of the study does not answer."""


@dataclass(frozen=True)
class Changes:
    """The members whose SuperNodes were registered and unregistered."""

    registered: tuple[str, ...]
    unregistered: tuple[str, ...]

    def lines(self) -> list[str]:
        """Describe the changes, one line for each kind."""
        lines = {
            "May connect from now on": self.registered,
            "May no longer connect": self.unregistered,
        }
        return [f"{what}: {', '.join(names)}." for what, names in lines.items() if names]


def superlink_is_up(study: Study) -> bool:
    try:
        return is_up(study.superlink_address, study.authority.read_bytes())
    except OSError as error:
        raise StudyError(f"{study.authority}: {error.strerror}") from error


def control(study: Study) -> ControlApi:
    """Connect to the study's SuperLink; NotUp if it does not answer."""
    if not superlink_is_up(study):
        raise NotUp("the coordinator is not up: start it with `feddc coordinator up`")
    return ControlApi(
        study.superlink_address,
        authority=study.authority.read_bytes(),
        secret=study.superlink_secret,
    )


def register_members(study: Study) -> Changes:
    """Register the SuperNodes of new members, and unregister those of removed ones."""
    api = control(study)
    try:
        return _register(api, study)
    except RequestError as error:
        raise StudyError(f"SuperLink request failed: {explain(error)}") from error


def _register(api: ControlApi, study: Study) -> Changes:
    wanted = {card.transport_pem: card.name for card in enrolled(study)}
    present = {node.public_key: node for node in api.nodes()}
    gone = [node for key, node in present.items() if wanted.get(key) != node.name]
    for node in gone:
        api.unregister_node(node.node_id)
    kept = {node.public_key for node in present.values()} - {node.public_key for node in gone}
    new = [(key, name) for key, name in wanted.items() if key not in kept]
    for key, name in new:
        api.register_node(name, key)
    return Changes(tuple(name for _, name in new), tuple(node.name for node in gone))


def main() -> None:
    """Wait for the SuperLink, then register: `python -m server_app.study.registration FOLDER`."""
    study = Study.open(Path(sys.argv[1]))
    deadline = time.monotonic() + _START_SECONDS
    while not superlink_is_up(study) and time.monotonic() < deadline:
        time.sleep(0.2)
    sys.stdout.write("\n".join(register_members(study).lines()))


if __name__ == "__main__":
    try:
        main()
    except StudyError as error:
        sys.exit(f"members are not registered: {error}")
