"""The study's compose file, for a machine that has the images but not the project.

It is the project's docker/coordinator/compose.yaml with this study's values as defaults. The wheel
holds a copy of that file beside this module.
"""

import os
import re
from pathlib import Path

from .study_folder import Study

_PROJECTS = Path(__file__).parents[2] / "docker" / "coordinator" / "compose.yaml"
_INSTALLED = Path(__file__).with_name("compose.yaml")
# A service's key and the deeper lines below it: without the project, nothing can be built.
_BUILD = re.compile(r"^    build:.*\n(?:      .*\n)*", re.MULTILINE)
_PORTS = '"${FEDDC_PORT:-8443}:${FEDDC_PORT:-8443}"'


def compose_file(study: Study) -> str:
    """Return the compose file of a study whose folder it will be in."""
    source = _INSTALLED if _INSTALLED.exists() else _PROJECTS
    text = _BUILD.sub("", source.read_text(encoding="utf-8"))
    listen = study.file.listen.rpartition(":")[2]
    values = {
        "${FEDDC_FOLDER:-./study}": ".",
        "${FEDDC_UID:-10004}": f"${{FEDDC_UID:-{os.geteuid()}}}",
        "${FEDDC_GID:-10004}": f"${{FEDDC_GID:-{os.getegid()}}}",
        _PORTS: f'"{study.address.port}:{listen}"',
    }
    for default, own in values.items():
        assert default in text, f"{source} has no {default}"  # noqa: S101 (our own file)
        text = text.replace(default, own)
    return text
