"""Users' own models: real installed packages, sound ones and broken ones."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from learning.models import ModelError, build, names, options_of

Install = Callable[..., None]

SOUND = """
import torch

def create(shape, classes, *, width=4):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], width), torch.nn.Linear(width, classes))
"""

ANY_OPTION = """
import torch

def create(shape, classes, **options):
    return torch.nn.Linear(shape[0], classes, bias=options["bias"])
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Lay packages out as pip does: a module, and a dist-info with its entry point."""
    monkeypatch.syspath_prepend(tmp_path)
    packages = []

    def install(name: str, source: str, *, package: str = "my_networks") -> None:
        packages.append(package)
        (tmp_path / f"{package}.py").write_text(source)
        about = tmp_path / f"{package}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[feddc.models]\n{name} = {package}:create\n")

    yield install
    for package in packages:
        sys.modules.pop(package, None)


def test_an_installed_plug_in_is_a_model_like_any_other(install: Install) -> None:
    install("my-net", SOUND)

    first, again = _build("my-net", {"width": 7}), _build("my-net", {"width": 7})

    assert "my-net" in names()
    assert [tuple(each.shape) for each in first.parameters()] == [(7, 5), (7,), (3, 7), (3,)]
    pairs = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_plug_ins_options_are_read_off_its_signature(install: Install) -> None:
    install("my-net", SOUND.replace("width=4", "depth, width=4"))

    options = {option.name: option for option in options_of("my-net")}

    assert options["depth"].required
    assert (options["width"].required, options["width"].default) == (False, 4)
    with pytest.raises(
        ModelError, match=r"model-options: 'size' is not an option of my-net.*width"
    ):
        _build("my-net", {"depth": 1, "size": 3})
    with pytest.raises(ModelError, match=r"plug-in 'my-net'.*depth"):
        _build("my-net", {"width": 3})


def test_a_plug_in_that_takes_any_option_gets_any(install: Install) -> None:
    install("my-net", ANY_OPTION)

    assert options_of("my-net") == ()
    assert len(list(_build("my-net", {"bias": False}).parameters())) == 1
    with pytest.raises(ModelError, match=r"plug-in 'my-net'.*failed: TypeError"):
        _build("my-net", {"shape": 1})


def test_a_module_class_is_a_plug_in(install: Install) -> None:
    install(
        "my-net",
        "import torch\n"
        "class create(torch.nn.Linear):\n"
        "    def __init__(self, shape, classes, bias=True):\n"
        "        super().__init__(shape[0], classes, bias=bias)\n",
    )

    assert len(list(_build("my-net", {"bias": False}).parameters())) == 1


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import no_such_package", "could not be imported: ModuleNotFoundError: No module named"),
        ("raise RuntimeError('first line\\nsecond')", "RuntimeError: first line second"),
        ("def other(): ...", "could not be imported: AttributeError"),
        ("create = 3", "must be a function or a class, but is int"),
        ("def create(shape, classes): return 'net'", "must return a torch.nn.Module, but returned"),
        ("def create(shape, classes): return None", "must return a torch.nn.Module, but returned"),
        ("def create(shape, classes): return 1 / 0", "failed: ZeroDivisionError: division by zero"),
        ("def create(): ...", "failed: TypeError"),
    ],
)
def test_a_broken_plug_in_is_named_in_one_line(
    install: Install, source: str, complaint: str
) -> None:
    install("my-net", source)

    with pytest.raises(ModelError) as caught:
        _build("my-net", {})
    message = str(caught.value)
    assert message.startswith("model: plug-in 'my-net' (my_networks:create) ")
    assert complaint in message
    assert "\n" not in message


def test_a_broken_plug_in_leaves_other_models_and_the_list_alone(install: Install) -> None:
    install("broken", "raise RuntimeError", package="broken_networks")
    install("my-net", SOUND)

    _build("my-net", {})
    _build("mlp", {})

    assert {"broken", "my-net", "mlp"} <= set(names())
    assert "broken_networks" not in sys.modules


def test_a_plug_in_cannot_take_a_built_in_name(install: Install) -> None:
    install("mlp", "raise RuntimeError")

    _build("mlp", {})

    assert names().count("mlp") == 1


def test_two_plug_ins_of_one_name_are_refused(install: Install) -> None:
    install("my-net", SOUND, package="networks_one")
    install("my-net", SOUND, package="networks_two")

    with pytest.raises(ModelError, match=r"'my-net' is installed twice: .*networks_.*networks_"):
        _build("my-net", {})


def test_a_plug_ins_own_model_error_reaches_the_user_unchanged(install: Install) -> None:
    install(
        "my-net",
        "from learning.models import ModelError\n"
        "def create(shape, classes):\n"
        "    raise ModelError('model: my-net needs at least 100 features, got 5')\n",
    )

    with pytest.raises(ModelError, match=r"^model: my-net needs at least 100 features, got 5$"):
        _build("my-net", {})


def _build(name: str, options: dict[str, object]) -> torch.nn.Module:
    return build(name, shape=(5,), classes=3, options=options, seed=1)
