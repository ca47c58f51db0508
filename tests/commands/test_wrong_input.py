"""Whatever a user gets wrong in any command is told in a line or two, without a traceback."""

import sys
from pathlib import Path

import pytest

from operation.cli import main
from tests.commands.walk import COMMANDS

WRONG = {
    "simulate": ["--hospitals nothing", "--aggregator best", "--set x", "--set nothing=1"],
    "docs": ["nothing"],
    "coordinator init": ["", "--name heart --address nowhere", "--name heart --address a:0"],
    "coordinator enrol": ["", "nothing.json", "broken.json", "."],
    "coordinator remove": ["", "nobody --yes"],
    "coordinator roster": ["", "--study broken.json"],
    "coordinator codebook": ["", "--from nothing.csv"],
    "coordinator renew-certificate": ["--study nowhere"],
    "coordinator up": ["--study nowhere", "--only nginx"],
    "coordinator down": ["--study nowhere"],
    "coordinator run": ["", "--set x", "--seed -1"],
    "coordinator follow": ["", "20260101-000000-000000"],
    "coordinator status": ["--study broken.json"],
    "coordinator resume": [""],
    "coordinator stop": [""],
    "coordinator dashboard": ["", "--port 99999"],
    "coordinator export": ["", "nothing"],
    "hospital init": ["", "--name", "--name a/b"],
    "hospital join": ["", "nothing", "broken.json"],
    "hospital card": ["", "--folder broken.json"],
    "hospital renew-transport-key": ["", "--folder broken.json"],
    "hospital check": ["--preview"],
    "hospital status": ["", "--folder broken.json", "--nothing"],
    "hospital serve": ["", "--folder broken.json"],
    "hospital connect": ["", "--coordinator broken.json"],
    "hospital experiments": ["", "--folder broken.json"],
    "hospital approve": ["", "nothing", "nothing --yes"],
    "hospital reject": ["", "nothing --yes"],
    "hospital evaluate": ["", "nothing"],
    "hospital predict": ["", "nothing", "nothing new.csv"],
    "hospital audit": ["", "--folder broken.json", "--nothing"],
    "hospital ledger": ["", "--folder broken.json"],
    "hospital reset": ["--yes", "--yes --folder broken.json"],
    "lab demo": ["--nothing"],
    "lab list": ["nothing"],
    "lab run": ["", "nothing", "synthetic --preset small", "synthetic --methods best"],
    "lab compare": ["", "nothing", "broken.json"],
    "lab report": ["nothing", "--docs nowhere"],
    "lab page": ["", "nothing"],
    "lab export": ["", "nothing", "run --to paper"],
    "lab dashboard": ["broken.json --port 0", "--port x"],
    "lab bound": ["", "--hospitals 0", "--hospitals 10 --examples 8 --delta 2"],
    "lab advise": ["", "--hospitals 1 --examples 8"],
    "lab attack": ["--picture"],
    "lab data": ["--nothing"],
    "sealing key": ["", "a/b"],
    "sealing roster": ["", "nothing.json", "broken.json"],
}


def test_every_command_is_called_wrongly() -> None:
    assert set(WRONG) == set(COMMANDS)


@pytest.mark.parametrize(("name", "arguments"), [(n, a) for n, all_ in WRONG.items() for a in all_])
def test_a_wrong_call_is_told_without_a_traceback(
    name: str,
    arguments: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("FEDDC_STUDY", "FEDDC_HOSPITAL", "FEDDC_DATA"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "broken.json").write_text("{not json", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["feddc", *name.split(), *arguments.split()])

    with pytest.raises(SystemExit) as ended:
        main()

    told = capsys.readouterr()
    assert ended.value.code in (1, 2), told
    assert "Traceback" not in told.err + told.out
    assert told.err.strip()
