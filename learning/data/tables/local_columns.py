"""How a hospital's own names, levels and units correspond to the codebook's: hospital.toml."""

from collections.abc import Mapping

from pydantic import Field

from operation.config import SettingsGroup


class LocalColumn(SettingsGroup):
    """One column of the codebook, as it is called and written at this hospital."""

    column: str = Field("", description="name in the file; empty: the codebook's")
    factor: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="local numbers times this are in the unit"
    )
    levels: dict[str, str] = Field(
        default={}, description="local levels or classes, each with the codebook's"
    )


LocalColumns = Mapping[str, LocalColumn]
"""By the codebook's name of the column. Columns that are not listed are as in the codebook."""
