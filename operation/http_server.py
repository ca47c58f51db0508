"""An HTTP server for one application: strict about requests, and silent about itself."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .processes import signals


class HttpServer(uvicorn.Server):
    """Uvicorn that returns after SIGTERM, SIGINT or SIGHUP, instead of raising the signal again."""

    def __init__(
        self,
        app: Any,
        *,
        shutdown_seconds: int,
        keep_alive_seconds: int = 5,
        connection: type[H11Protocol] = H11Protocol,  # strict about headers, and limits their size
        backlog: int = 2048,
    ) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=backlog,
            timeout_keep_alive=keep_alive_seconds,
            timeout_graceful_shutdown=shutdown_seconds,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        signals.catch(self.handle_exit)
        yield
