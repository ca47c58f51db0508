"""docs/tutorials/coordinator.md: every step runs as it stands, and shows what the page shows."""

import json
import re

import httpx
import pytest

from tests.federation.federation import needs_nginx
from tests.tutorials.readers import COORDINATOR, coordinator
from tests.tutorials.session import steps


@needs_nginx
@pytest.mark.slow
@pytest.mark.timing
def test_every_step_of_the_page_runs_and_ends_with_a_report_and_a_model() -> None:
    with coordinator() as reader:
        for step in steps(COORDINATOR):
            reader.do(step)
            if step.text == "cat dashboard.log":
                address = re.search(r"http://\S+", reader.run("cat dashboard.log"))
                assert address is not None
                assert httpx.get(address[0], follow_redirects=True).status_code == 200
        (experiment,) = (reader.folder / "study" / "experiments").glob("2*")
        report = (experiment / "report.html").read_text(encoding="utf-8")
        assert not re.search("Anna|Barts|Charite", report)  # it is handed out
        summary = json.loads((experiment / "summary.json").read_text(encoding="utf-8"))
        assert summary["readable_models"] == 0  # as the dry run says
        assert (experiment / "export" / "model.onnx").stat().st_size > 0
        reader.run("wait")
        assert reader.run("jobs -rp") == ""  # nothing runs any more
