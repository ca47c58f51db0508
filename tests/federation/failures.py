"""What the tests of failures ask of an experiment."""

from tests.federation.federation import Federation

VICTIM = "hospital-02"


def options(**changes: object) -> list[str]:
    given = [f"{key.replace('_', '-')}={value}" for key, value in changes.items()]
    return [word for assignment in given for word in ("--set", assignment)]


def missing_in(study: Federation) -> dict[int, dict[str, str]]:
    """Return who was missing in which leg, and why."""
    return {event["leg"]: event["missing"] for event in study.events("leg") if event["missing"]}


def ever_missing(study: Federation) -> set[str]:
    return set().union(*missing_in(study).values())


def answered_after(study: Federation, leg: int, name: str) -> bool:
    return any(
        line["leg"] > leg and line["hospital"] == name and not line["problem"]
        for line in study.events("hospital")
    )
