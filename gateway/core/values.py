"""`dataclass` whose `frozen` is the type checker's business alone.

At run time a frozen class sets each field through `object.__setattr__`, which takes 80 ns instead of 15; a governed call makes some thirty
values with 150 fields. mypy refuses every assignment all the same. Frozen classes are hashable, as in the standard library.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, **options: Any) -> Any:
        return dataclasses.dataclass(cls, eq=eq, unsafe_hash=frozen and eq, **options)
