"""`import feddc`: what it offers, what it loads, and what it says when it is hidden."""

import subprocess
import sys
from pathlib import Path

import pytest

import feddc
import strategies

ROOT = Path(__file__).parents[2]


def python(code: str, folder: Path, *options: str, **environment: str) -> tuple[int, str, str]:
    """Run code as a user's script in a folder of its own, with this project after it."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_it_offers_the_strategy_the_aggregators_and_their_arguments() -> None:
    names = {"FedDC", "GeometricMedian", "RadonPoint", "SealedStudy"}
    assert names <= set(feddc.__all__)
    for name in names:
        assert getattr(feddc, name) is getattr(strategies, name)
    assert sorted(feddc.__all__) == dir(feddc)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'feddc' has no attribute 'FedDc'"):
        _ = feddc.FedDc


def test_importing_it_loads_neither_flower_nor_torch(tmp_path: Path) -> None:
    code = "import feddc, sys; print({'flwr', 'torch', 'numpy', 'strategies'} & set(sys.modules))"
    assert python(code, tmp_path) == (0, "set()\n", "")


@pytest.mark.parametrize("package", ["strategies", "client_app", "protocol"])
def test_a_users_package_of_the_same_name_is_named(package: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    theirs = tmp_path / package / "__init__.py"
    theirs.write_text("")
    code, _, errors = python("from feddc import FedDC", tmp_path)
    assert code == 1
    last = errors.splitlines()[-1]
    assert last.startswith(f"ImportError: feddc needs its own package '{package}'")
    assert f"Python finds {theirs}. Rename" in last


def test_a_users_module_of_the_same_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "operation.py").write_text("")
    code, _, errors = python("import operation; import feddc", tmp_path)
    assert code == 1
    assert f"Python finds {tmp_path / 'operation.py'}. Rename" in errors


def test_the_other_remedy_of_the_message_works(tmp_path: Path) -> None:
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "__init__.py").write_text("")
    code = "from feddc import FedDC; print(FedDC.__module__)"
    assert python(code, tmp_path, "-P") == (0, "strategies.feddc\n", "")


def test_a_folder_that_is_no_package_is_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "notes.txt").write_text("")
    assert python("import feddc", tmp_path) == (0, "", "")
