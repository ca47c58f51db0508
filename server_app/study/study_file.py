"""study.toml: the name of a study and the addresses of its coordinator."""

from pydantic import Field, ValidationInfo, field_validator

from operation.config import SettingsGroup, toml_lines
from protocol.address import Address
from protocol.study.names import check_name


class StudyFile(SettingsGroup):
    """study.toml."""

    name: str = Field(description="name of the study on its roster")
    address: str = Field(description="where hospitals reach the coordinator, HOST:PORT")
    listen: str = Field(description="where the proxy listens on this machine, HOST:PORT")
    internal_port: int = Field(
        28000,
        ge=1,
        le=65534,
        description="port of the SuperLink, on this machine only; long polling uses the next one",
    )

    notify: str = Field(
        "",
        description="webhook (https://…) or command that is told when an experiment ends or waits",
    )

    @field_validator("name")
    @classmethod
    def _fits_a_roster(cls, name: str) -> str:
        return check_name(name)

    @field_validator("address", "listen")
    @classmethod
    def _is_an_address(cls, text: str, info: ValidationInfo) -> str:
        Address.parse(text)
        return text

    def to_toml(self) -> str:
        """Return the text of the file, with a comment for each key."""
        return "\n".join(toml_lines(self.fields(), self.as_config())) + "\n"
