"""The README's screens for hospital and coordinator make a study, as they stand."""

import shutil
from collections.abc import Iterator

import pytest

from tests.federation.federation import needs_nginx, wait_for
from tests.federation.screens import HOSPITALS, TASK, Screens, screens_of
from tests.snippets import README, under

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]


@pytest.fixture
def screens() -> Iterator[Screens]:
    pages = [under(README, f"For a {user}")[0] for user in ("hospital", "coordinator")]
    with screens_of({" ".join(w[1:3]): w[1:] for page in pages for w in page.commands}) as made:
        yield made


def test_the_two_screens_make_a_study_with_a_model_and_an_audit_log(screens: Screens) -> None:
    coordinator = screens.place("coordinator")
    screens.enrol_all(TASK)
    screens.run("coordinator roster", "coordinator")

    for name in HOSPITALS:
        sent = coordinator / "study" / "for-hospitals"
        shutil.copytree(sent, screens.place(name) / "for-hospitals")
        screens.run("hospital join", name)
        assert "examples to train on" in screens.run("hospital check", name)
        screens.start("hospital serve", name)
    screens.run("coordinator up", "coordinator")
    for name in HOSPITALS:
        screens.start("hospital connect", name)
    run = screens.start("coordinator run", "coordinator")
    for name in HOSPITALS:
        experiment = wait_for(lambda name=name: screens.waiting(name), f"a request to {name}")
        screens.run("hospital approve", name, experiment=experiment)
    assert run.wait(1000) == 0, (coordinator / "background.log").read_text()

    result = (coordinator / "background.log").read_text()
    assert "6 = 4 hand-overs + 2 aggregations" in result
    assert list(coordinator.glob("study/experiments/*/model.safetensors"))
    for name in HOSPITALS:
        audit = screens.run("hospital audit", name)
        assert "models sent to coordinator, as part of a sum of 3: 2" in audit
        assert "complete and in order" in audit
