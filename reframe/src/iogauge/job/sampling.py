"""Samples of the contents, which the agent on the first node takes between the phases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from iogauge.core import deadline
from iogauge.node import contents
from iogauge.node.contents import Block, Sample
from iogauge.plan.stage import CONTENTS

#: Seconds that a sample may take on storage that answers slowly; less than the job script waits.
_PATIENCE_S: Final = 5.0
#: Types of file systems whose map of a file says what is a hole and what is compressed.
_MAPPED: Final = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay")


@dataclass(slots=True)
class Sampler:
    """Takes samples, and remembers which blocks of a directory were read after the last write."""

    type: str
    _written: dict[str, Sequence[Block]] = field(default_factory=dict)

    def take(self, repetition: int, after: str, directory: str) -> None:
        """Write a sample to the stage, or why there is none; raises OSError of the stage alone."""
        known = self._written.get(directory) if after == "read" else None
        way: Final = "read" if after == "read" else "write"
        try:
            blocks, files, direct = deadline.call(
                directory,
                lambda: contents.look(directory, known, self.type in _MAPPED),
                _PATIENCE_S,
            )
            sample = Sample(
                repetition=repetition,
                after=way,
                blocks=tuple(blocks),
                files=tuple(files),
                direct=direct,
            )
        except OSError as error:
            sample = Sample(repetition=repetition, after=way, problem=str(error))
        if way == "write":
            self._written[directory] = sample.blocks
        with open(CONTENTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(sample.to_json()) + "\n")
