"""The study's compose file: the coordinator in containers, for those who prefer them.

The same as docker/coordinator/compose.yaml of the project, for a machine that has only the images.
"""

import os

from protocol import __version__

from .study_folder import Study

_TEMPLATE = """\
# The coordinator of this study in containers; the project's docs/containers.md says more.
# `docker compose up -d`, then `docker compose exec superlink feddc coordinator status`.
name: feddc-coordinator

x-hardened: &hardened
  init: true
  restart: unless-stopped
  read_only: true
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  user: "${{FEDDC_UID:-{uid}}}:${{FEDDC_GID:-{gid}}}"  # the owner of this folder
  logging:
    driver: local
    options: {{max-size: 10m, max-file: "5"}}

services:
  superlink:
    <<: *hardened
    image: feddc/superlink:${{FEDDC_VERSION:-{version}}}
    # The SuperLink listens on the loopback that it shares with the proxy, and nowhere else.
    network_mode: service:network
    stop_grace_period: 45s
    volumes:
      - .:/study${{FEDDC_LABEL:-}}
      - proxy:/study/proxy
    tmpfs: ["/tmp:size=1g,mode=1777,nosuid,nodev"]
    mem_limit: ${{FEDDC_MEMORY:-8g}}
    pids_limit: 512

  proxy:
    <<: *hardened
    image: feddc/proxy:${{FEDDC_VERSION:-{version}}}
    network_mode: service:network
    depends_on:
      superlink: {{condition: service_healthy}}
    volumes:
      - proxy:/proxy:ro
    tmpfs: ["/tmp:size=1g,mode=1777,noexec,nosuid,nodev"]  # pieces of models on their way
    mem_limit: 1200m
    pids_limit: 32

  network:  # held apart, so that each of the two can be restarted alone
    <<: *hardened
    image: feddc/proxy:${{FEDDC_VERSION:-{version}}}
    entrypoint: [sleep, infinity]
    healthcheck: {{test: [CMD, "true"], start_period: 10s, start_interval: 1s}}
    ports: ["{port}:{listen}"]
    mem_limit: 32m
    pids_limit: 16

volumes:
  # All that the proxy sees, in memory: its configuration, the server's key and certificate.
  proxy:
    driver_opts:
      type: tmpfs
      device: tmpfs
      o: "size=1m,uid=${{FEDDC_UID:-{uid}}},mode=0700,noexec,nosuid,nodev"
"""


def compose_file(study: Study) -> str:
    return _TEMPLATE.format(
        version=__version__,
        port=study.address.port,
        listen=study.file.listen.rpartition(":")[2],
        uid=os.geteuid(),
        gid=os.getegid(),
    )
