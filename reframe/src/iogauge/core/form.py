"""Objects of JSON whose older and newer forms are read too."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11


class Form(BaseModel):
    """An object of JSON: the fields of a subclass are its keys.

    A field without a default must be there. A value that is there must have the field's type; ``Any`` takes every
    value. Keys that are not declared are kept.
    """

    #: Keys that a new object has only if there is something to say.
    seldom: ClassVar[Collection[str]] = ()

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="allow",
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        populate_by_name=True,
        defer_build=True,
    )

    @classmethod
    def new(cls, **values: Any) -> Self:
        """Make a new object of its fields; the values are not looked at."""
        for name in cls.seldom:
            if values.get(name) is None:
                values.pop(name, None)
        return cls.model_construct(**values)

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Build the object from what JSON holds; raises TypeError or ValueError that names the key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise _in_words(error) from None

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON holds it: keys that were left out stay out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _in_words(error: ValidationError) -> TypeError | ValueError:
    """Return the first mistake in words."""
    mistake = error.errors(include_url=False)[0]
    place = ""
    for part in mistake["loc"]:
        step = f".{part}"
        if isinstance(part, int):
            step = f"[{part}]"
        place += step
    place = place.lstrip(".")
    if mistake["type"] == "missing":
        return TypeError(f"the key {place} is missing")
    if mistake["type"] == "value_error":
        return ValueError(str(mistake["ctx"]["error"]))
    found = reprlib.repr(mistake["input"])
    expected = mistake["msg"].replace("Input should be", "expected")
    return TypeError(f"{place or 'the record'} is {found}: {expected}")
