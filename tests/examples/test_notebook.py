"""The example notebook runs from its first cell to its last."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "feddc.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_says() -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = ["".join(str(output) for output in cell.outputs) for cell in cells]
    assert "text/html" in shown[1]
    assert "image/png" in shown[2]
    assert "image/png" in shown[3]
    assert "test_accuracy" in shown[4]
    assert not any("INFO" in text for text in shown)
