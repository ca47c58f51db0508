"""The tasks that a SuperNode hands out under `--isolation=process`, and Flower's code for one."""

from dataclasses import dataclass

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import run_clientapp as run_clientapp


@dataclass(frozen=True)
class AcquiredTask:
    """A task of the SuperNode's; its token gives access to the task's message."""

    kind: str
    token: str

    @property
    def is_for_a_clientapp(self) -> bool:
        return self.kind == TaskType.CLIENT_APP


class TaskSource:
    """A SuperNode's runtime API on this machine, which hands out tasks."""

    def __init__(self, address: str) -> None:
        self._client = RuntimeHttpClient.from_server_address(
            address,
            insecure=True,  # it never leaves this machine
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec")],
        )
        # Tasks of every kind: the SuperNode would wait forever for one that is never acquired.
        self._request = AcquireTaskRequest(supported_task_types=[str(kind) for kind in TaskType])

    def acquire(self) -> AcquiredTask | None:
        """Return the next task, or None if there is none or the SuperNode is starting or ending."""
        try:
            found = self._client.AcquireTask(self._request)
        except httpx.TransportError:
            return None
        except httpx.HTTPStatusError as error:
            if not error.response.is_server_error:
                raise
            return None
        if not (found.HasField("task") and found.token):
            return None
        return AcquiredTask(found.task.type, found.token)
