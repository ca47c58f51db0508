"""The study's compose file: SuperLink and proxy as containers, for those who prefer them."""

from protocol import __version__
from protocol.connection import Address

from .study import Study

_TEMPLATE = """\
# The coordinator in two containers; docker/coordinator/ of the project has the image.
# `docker compose up -d`, then `docker compose exec superlink feddc coordinator status`.
name: feddc-coordinator

x-part: &part
  image: feddc/coordinator:{version}
  user: "${{FEDDC_UID:-1000}}:${{FEDDC_GID:-1000}}"   # the owner of this folder
  restart: unless-stopped
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  volumes: [".:/study"]
  environment:
    FEDDC_STUDY: /study

services:
  superlink:
    <<: *part
    command: [feddc, coordinator, up, --foreground, --only, superlink]
    ports: ["{port}:{listen}"]

  proxy:
    <<: *part
    command: [feddc, coordinator, up, --foreground, --only, proxy]
    # It listens for both: the SuperLink itself stays on the loopback that the two share.
    network_mode: "service:superlink"
    depends_on: [superlink]
"""


def compose_file(study: Study) -> str:
    listen = Address.parse(study.file.listen).port
    return _TEMPLATE.format(version=__version__, port=study.address.port, listen=listen)
