"""The tasks that Flower hands out under `--isolation=process`, and its code for a courier's.

A SuperNode hands out the work of couriers, a SuperLink that of ServerApps. Both give a task only
to a caller with the secret that they were started with; otherwise every user of the machine could
take it.
"""

from dataclasses import dataclass

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http import SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import run_clientapp as run_clientapp

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


@dataclass(frozen=True)
class AcquiredTask:
    """A task; its token gives access to the task's message."""

    kind: str
    token: str

    @property
    def is_for_a_clientapp(self) -> bool:
        return self.kind == TaskType.CLIENT_APP

    @property
    def is_for_the_superlink(self) -> bool:
        """Whether it is a ServerApp or a simulation; the kind is also its program's name."""
        return self.kind in (TaskType.SERVER_APP, TaskType.SIMULATION)


class TaskSource:
    """The runtime API of a SuperNode or SuperLink on this machine, which hands out tasks.

    With TLS if the server's authority (PEM) is given.
    """

    def __init__(self, address: str, secret: bytes, authority: bytes | None = None) -> None:
        self._client = RuntimeHttpClient.from_server_address(
            address,
            insecure=authority is None,
            root_certificates=authority,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperExec"),
                SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[_ACQUIRE]),
            ],
        )
        # Tasks of every kind: one that is never acquired would be waited for, forever.
        self._request = AcquireTaskRequest(supported_task_types=[str(kind) for kind in TaskType])

    def acquire(self) -> AcquiredTask | None:
        """Return the next task, or None if there is none or the server is starting or ending."""
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
