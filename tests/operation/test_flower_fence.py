"""Flower's non-public interface: used in `operation.flower` only, and still there.

flwr is pinned to one minor version. After an upgrade, these tests name what has moved.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import flwr
import pytest
from flwr.app import Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from operation.flower import environment
from operation.flower.grid import set_message_id, set_task_identity
from operation.flower.logger import log
from operation.flower.options_and_logs import DONE, RECEIVED, REPLYING, SECRET_OPTION

ROOT = Path(__file__).parents[2]
FENCE = ROOT / "operation" / "flower"
FOLDERS = ("benchmarks", "client_app", "docker", "feddc", "lab", "learning", "operation")
FOLDERS += ("protocol", "server_app", "strategies")
PUBLIC = {
    "flwr.app",
    "flwr.clientapp",
    "flwr.serverapp",
    "flwr.serverapp.exception",
    "flwr.serverapp.strategy",
}
# Every non-public thing that `operation.flower` imports.
NON_PUBLIC = {
    "flwr.app.message": {"remove_content_from_message"},
    "flwr.cli.build": {"build_fab_from_files"},
    "flwr.common.constant": {"ACCESS_TOKEN_KEY"},
    "flwr.common.serde": {"fab_to_proto", "message_to_proto"},
    "flwr.proto.control_pb2": {
        "ListNodesRequest",
        "ListRunsRequest",
        "RegisterNodeRequest",
        "StartRunRequest",
        "StopRunRequest",
        "StreamLogsRequest",
        "UnregisterNodeRequest",
    },
    "flwr.proto.fab_pb2": {"Fab"},
    "flwr.proto.federation_config_pb2": {"SimulationConfig"},
    "flwr.proto.fleet_pb2": {
        "ActivateNodeRequest",
        "DeactivateNodeRequest",
        "PullMessagesRequest",
        "PushMessagesRequest",
    },
    "flwr.proto.message_pb2": {"ObjectTree"},
    "flwr.proto.node_pb2": {"Node"},
    "flwr.proto.runtime_pb2": {"AcquireTaskRequest"},
    "flwr.supercore.auth.typing": {"AccountInfo"},
    "flwr.supercore.constant": {"TaskType"},
    "flwr.supercore.control": {"ControlHttpClient"},
    "flwr.supercore.fab": {"Fab"},
    "flwr.supercore.inflatable.inflatable_object": {
        "get_all_nested_objects",
        "get_object_tree",
        "no_object_id_recompute",
    },
    "flwr.supercore.inflatable.inflatable_protobuf_utils": {
        "make_confirm_message_received_fn_protobuf",
        "make_pull_object_fn_protobuf",
        "make_push_object_fn_protobuf",
    },
    "flwr.supercore.inflatable.inflatable_utils": {
        "pull_and_inflate_object_from_tree",
        "push_objects",
    },
    "flwr.supercore.interceptors": {"RuntimeVersionHttpInterceptor"},
    "flwr.supercore.interceptors.http": {"SuperExecAuthHttpInterceptor"},
    "flwr.supercore.interceptors.http.runtime_version": {"RuntimeVersionHttpInterceptor"},
    "flwr.supercore.primitives.asymmetric": {"public_key_to_bytes"},
    "flwr.supercore.protobuf.client": {"ProtobufCall", "ProtobufRequestContext"},
    "flwr.supercore.retry": {"make_simple_http_retry_invoker"},
    "flwr.supercore.run": {"Run"},
    "flwr.supercore.runtime": {"RuntimeHttpClient"},
    "flwr.supercore.task_identity": {"TaskIdentity"},
    "flwr.superlink.auth_plugin": {"NoOpControlAuthnPlugin"},
    "flwr.superlink.cli.flower_superlink": {
        "_parse_superlink_lifespan_config",
        "_run_superlink_http_api",
    },
    "flwr.superlink.config_loader": {"SuperLinkLifespanConfig"},
    "flwr.superlink.main": set[str](),
    "flwr.supernode.fleet_http_client": {"FleetHttpClient"},
    "flwr.supernode.node_auth_http_interceptor": {"NodeAuthHttpInterceptor"},
    "flwr.supernode.runtime.run_clientapp": {"run_clientapp"},
}
REMOTE_CALLS = {
    ("flwr.supercore.control", "ControlHttpClient"): {
        "ListNodes",
        "ListRuns",
        "RegisterNode",
        "StartRun",
        "StopRun",
        "StreamLogs",
        "UnregisterNode",
    },
    ("flwr.supercore.runtime", "RuntimeHttpClient"): {"AcquireTask"},
    ("flwr.supernode.fleet_http_client", "FleetHttpClient"): {
        "ActivateNode",
        "ConfirmMessageReceived",
        "DeactivateNode",
        "PullMessages",
        "PullObject",
        "PushMessages",
        "PushObject",
    },
}


def flower_imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield module and name of every import from flwr."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((a.name, None) for a in node.names if a.name.split(".")[0] == "flwr")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_outside_the_fence_only_public_flower_is_imported() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    outside = [path for path in files if FENCE not in path.parents]

    used = {(path.relative_to(ROOT), *found) for path in outside for found in flower_imports(path)}

    assert len(used) > 20
    assert {found for found in used if not is_public(*found[1:])} == set()


def is_public(module: str, name: str | None) -> bool:
    return module in PUBLIC and name in getattr(import_module(module), "__all__", [name])


def test_the_list_of_non_public_imports_is_complete() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(FENCE.rglob("*.py")):
        for module, name in flower_imports(path):
            if module not in PUBLIC:
                found.setdefault(module, set()).update({name} - {None})

    assert found == NON_PUBLIC


@pytest.mark.parametrize("module", NON_PUBLIC)
def test_every_non_public_name_is_there(module: str) -> None:
    loaded = import_module(module)

    assert {name for name in NON_PUBLIC[module] if not hasattr(loaded, name)} == set()


@pytest.mark.parametrize(("module", "name"), REMOTE_CALLS)
def test_every_remote_call_is_there(module: str, name: str) -> None:
    client = getattr(import_module(module), name)

    missing = {call for call in REMOTE_CALLS[module, name] if not hasattr(client, call)}
    assert missing == set()
    assert callable(client.from_server_address)


def test_messages_take_the_identity_and_the_id_that_are_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_run_id", "_node_id", "_task_id"):  # of the whole process: restored at the end
        monkeypatch.setattr(TaskIdentity, name, None)
    set_task_identity(run_id=7, node_id=8, task_id=9)
    message = Message(RecordDict(), 100, "train")
    set_message_id(message, "an-id")

    assert (message.metadata.run_id, message.metadata.src_node_id) == (7, 8)
    assert message.metadata.message_id == "an-id"


def test_the_logger_is_flowers_own() -> None:
    from flwr.supercore import log as flowers

    assert log == flowers


def test_flower_reads_every_variable_that_is_set_for_it() -> None:
    home = Path("/home-of-flower")
    ours = environment.superlink_environment(home, poll_seconds=1) | environment.ONE_PIECE_AT_A_TIME
    variables = {name for name in ours if name.startswith("FLWR_") and name not in os.environ}
    assert len(variables) >= 6

    source = "".join(
        path.read_text(encoding="utf-8") for path in Path(flwr.__path__[0]).rglob("*.py")
    )

    assert {name for name in variables if f'"{name}"' not in source} == set()


def test_flower_has_every_option_and_log_line_that_is_relied_on() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for name in ("supernode", "supercore")
        for path in Path(flwr.__path__[0], name).rglob("*.py")
    )

    relied_on = (SECRET_OPTION, RECEIVED, REPLYING, *DONE)
    for words in relied_on:
        assert words in source


def test_nothing_heavy_comes_with_the_light_modules() -> None:
    script = (
        "import sys\nfrom operation.flower import environment, logger, options_and_logs\n"
        "print(*{name.partition('.')[0] for name in sys.modules})\n"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()

    assert {"flwr", "pydantic", "httpx", "numpy"} & set(loaded) == set()
