"""Write what the declarations of settings say into pyproject.toml and docs/settings.md.

    python -m server_app.config.settings_docs

Run it after a setting was added or changed; `make settings` does.
"""

import re
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from learning.names import DATASETS, MODELS
from learning.settings import LocalSettings, TrainingSettings
from operation.config import sentence, toml_lines

from .method_settings import MethodSettings
from .run_config import AlgorithmSettings, Settings

_ROOT = Path(__file__).resolve().parents[2]
_CONFIG = re.compile(r"(?<=^\[tool\.flwr\.app\.config\]\n).*?(?=^\[)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(?<=^<!-- settings: )(.*?) -->\n.*?(?=^<!-- end -->$)", re.M | re.S)


def main() -> None:
    """Update both files and name those that changed."""
    for path, text in generated(_ROOT).items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(_ROOT)}\n")


def generated(root: Path) -> dict[Path, str]:
    """Return both files as they should be."""
    project, page = root / "pyproject.toml", root / "docs" / "settings.md"
    return {
        project: _CONFIG.sub(lambda _: config_block(), project.read_text(encoding="utf-8")),
        page: _BLOCK.sub(
            lambda block: f"{block[1]} -->\n{table(block[1])}", page.read_text(encoding="utf-8")
        ),
    }


def groups() -> dict[str, dict[str, FieldInfo]]:
    """Return the declarations of all settings of a run, by title and key."""
    method, study = MethodSettings.fields(), AlgorithmSettings.fields()
    training = TrainingSettings.fields()
    del training["proximal-mu"]  # the aggregator sets it; see Settings.defaults
    return {
        "the algorithm": method,
        "the study": {key: field for key, field in study.items() if key not in method},
        "training": training,
        "data": LocalSettings.fields(),
    }


def config_block() -> str:
    """Return the lines of [tool.flwr.app.config]."""
    lines: list[str] = []
    for title, fields in groups().items():
        lines += [f"# {title.capitalize()}", *toml_lines(fields, Settings.defaults())]
    return "\n".join(lines) + "\n\n"


def table(title: str) -> str:
    """Return the table of one group of settings for docs/settings.md."""
    rows = ["| key | default | values | meaning, and when to change it |", "| --- " * 4 + "|"]
    for key, field in groups()[title].items():
        (line,) = toml_lines({key: field}, Settings.defaults())
        default = line.partition(" = ")[2].partition("  # ")[0]
        rows.append(f"| `{key}` | `{default}` | {_values(key, field)} | {_meaning(field)} |")
    return "\n".join(rows) + "\n"


def _meaning(field: FieldInfo) -> str:
    return f"{sentence(str(field.description))} {_extra(field, 'advice')}".rstrip()


def _values(key: str, field: FieldInfo) -> str:
    if text := _extra(field, "values"):
        return text
    if key in ("model", "dataset"):
        names = MODELS if key == "model" else DATASETS
        return ", ".join(f"`{name}`" for name in names) + ", or a plug-in"
    if field.annotation is bool:
        return "`true`, `false`"
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    return _range(field)


def _range(field: FieldInfo) -> str:
    ge, gt, le, lt = (_limit(field, name) for name in ("ge", "gt", "le", "lt"))
    start = f"above {gt}" if gt else ge
    if not le and not lt:
        return start if gt else f"{start} or more"
    end = f"below {lt}" if lt else le
    return f"{start}, {end}" if gt and lt else f"{start} to {end}"


def _limit(field: FieldInfo, name: str) -> str:
    found = (getattr(limit, name, None) for limit in field.metadata)
    return next((f"{limit:g}" for limit in found if limit is not None), "")


def _extra(field: FieldInfo, name: str) -> str:
    extra = field.json_schema_extra
    return str(extra.get(name, "")) if isinstance(extra, dict) else ""


if __name__ == "__main__":
    main()
