"""The configuration of the reverse proxy: it passes Flower's Fleet API and nothing else.

The SuperLink serves its Control API on the same port. That API starts runs without
authentication, so it must not be reachable from outside.
"""

import os
import shutil
import subprocess

from operation import files
from server_app.study.study_folder import Study

# Flower's chunks have 5 MiB, and a request holds one chunk with little overhead.
BODY_LIMIT = "8m"
CONFIGURATION = "nginx.conf"
_MODULES = ("fastcgi", "uwsgi", "scgi")
_NEEDED_BY_THE_PROXY = ("server.pem", "server.key", "ca.crt")

_TEMPLATE = """\
# Written by `feddc coordinator up`; changes are overwritten. Paths are seen from this folder.
daemon off;
{user}pid nginx.pid;
# No warnings: there is one for every chunk of a model that is buffered on disk.
error_log stderr error;
worker_processes 2;

events {{
    worker_connections 1024;
}}

http {{
    server_tokens off;
    default_type text/plain;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
{temp_paths}
    # Only refused and failed requests: hospitals poll several times a minute.
    map $status $remarkable {{
        ~^2 0;
        default 1;
    }}
    log_format refused '$remote_addr "$request_method $uri" $status';
    access_log /dev/stdout refused if=$remarkable;

    upstream superlink {{
        server {superlink};
        keepalive 32;
    }}

    # The chunks of models: each has 5 MiB and takes several times that in the SuperLink's memory,
    # so their number is limited. Clients retry after a 502.
    upstream superlink-chunks {{
        zone superlink-chunks 64k;
        server {superlink} max_conns=8;
        keepalive 8;
    }}

    upstream long-poll {{
        server {long_poll};
        keepalive 32;
    }}

    server {{
        listen {listen} ssl;
        ssl_certificate {tls}/server.pem;
        ssl_certificate_key {tls}/server.key;
        ssl_protocols TLSv1.3;
        ssl_session_cache shared:tls:1m;

        client_max_body_size {body_limit};
        client_body_buffer_size 64k;
        client_header_timeout 20s;
        client_body_timeout 60s;
        send_timeout 60s;
        keepalive_timeout 75s;

        proxy_http_version 1.1;
        proxy_set_header Host localhost;
        proxy_set_header Connection "";
        proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Forwarded-Proto https;
        proxy_ssl_protocols TLSv1.3;
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate {tls}/ca.crt;
        proxy_ssl_name localhost;
        proxy_connect_timeout 5s;
        proxy_send_timeout 60s;
        proxy_read_timeout 180s;
        # Bodies pass through: but for pieces, none is collected on the disk, either way.
        proxy_request_buffering off;
        proxy_max_temp_file_size 0;

        location / {{
            return 404;
        }}

        # The path is written anew from what was matched: no other spelling of it, and no
        # query, ever reaches the SuperLink.
        location ~ ^/v1/fleet/(?<chunk>(push|pull)-object)$ {{
            limit_except POST {{
                deny all;
            }}
            proxy_pass https://superlink-chunks/v1/fleet/$chunk;
            # A slow hospital must not occupy one of the few connections.
            proxy_request_buffering on;
            proxy_max_temp_file_size {body_limit};
        }}

        location ~ ^/v1/fleet/(?<call>[a-z-]+)$ {{
            limit_except POST {{
                deny all;
            }}
            proxy_pass https://superlink/v1/fleet/$call;
        }}

        # Long polling for messages; if its server is down, the SuperLink answers at once.
        location = /v1/fleet/pull-messages {{
            limit_except POST {{
                deny all;
            }}
            proxy_pass http://long-poll$uri;
            proxy_request_buffering on;
            proxy_read_timeout 40s;
            error_page 502 504 = @superlink;
        }}

        location @superlink {{
            proxy_pass https://superlink$uri;
        }}
    }}
}}
"""


class ProxyError(Exception):
    """The proxy cannot be started; the message says what to do."""


def find_nginx() -> str:
    """Return the path of nginx; ProxyError says how to install it."""
    # The search path of many users lacks the system's programs.
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"))
    if (found := shutil.which("nginx", path=path)) is None:
        raise ProxyError(
            "nginx is not installed: `apt-get install nginx-light`, `dnf install nginx` or "
            "`brew install nginx`"
        )
    return found


def configuration(
    study: Study, *, tls: str = "../tls", without: tuple[str, ...] = (), as_root: bool = False
) -> str:
    """Return the proxy's configuration, without the modules that this nginx lacks."""
    temp_paths = [
        f"    {name}_temp_path temp/{name};\n" for name in _MODULES if name not in without
    ]
    return _TEMPLATE.format(
        # As root its workers would become another user, who cannot read the study's folder.
        user="user root;\n" if as_root else "",
        temp_paths="".join(temp_paths),
        tls=tls,
        superlink=study.superlink_address,
        long_poll=study.long_poll_address,
        listen=study.file.listen,
        body_limit=BODY_LIMIT,
    )


def prepare(study: Study) -> list[str]:
    """Write the configuration for this machine's nginx; return the command that starts it."""
    nginx = find_nginx()
    built = subprocess.run([nginx, "-V"], capture_output=True, text=True, check=False)  # noqa: S603
    without = tuple(name for name in _MODULES if f"--without-http_{name}_module" in built.stderr)
    files.make_folder(study.proxy / "temp")
    text = configuration(study, without=without, as_root=os.geteuid() == 0)
    files.replace(study.proxy / CONFIGURATION, text.encode())
    command = [nginx, "-p", f"{study.proxy}/", "-c", CONFIGURATION, "-e", "stderr"]
    tried = subprocess.run([*command, "-t", "-q"], capture_output=True, text=True, check=False)  # noqa: S603
    if tried.returncode:
        raise ProxyError(f"nginx rejects its configuration: {_first_line(tried.stderr)}")
    return command


def prepare_for_container(study: Study) -> None:
    """Put the files that a proxy in its own container needs, and no others, into its folder."""
    files.make_folder(study.proxy)
    for name in _NEEDED_BY_THE_PROXY:
        files.replace(study.proxy / name, (study.tls / name).read_bytes(), mode=0o600)
    files.replace(study.proxy / CONFIGURATION, configuration(study, tls=".").encode())


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "no reason given")
