"""The scenario that saves a model's state and reads it again, with IOR."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from iogauge.cases.ior import READ, WRITE, IorCheck
from iogauge.core.measurement import Metric, Reference
from iogauge.core.units import format_bytes
from iogauge.site.extras import Checkpoint

SAVE_TIME = Metric("save_time", "s", "less")
RESTART_TIME = Metric("restart_time", "s", "less")


class CheckpointCheck(IorCheck):
    """A model's state, saved and read again within the times that the site declares.

    A subclass sets ``model``, a name in the partition's ``checkpoints``, and ``file_per_process``.
    """

    model: str
    transfer = 4 << 20
    # The budget says what a training needs, not what the target can do.
    times = MappingProxyType({"write": SAVE_TIME, "read": RESTART_TIME})

    @property
    def _declared_model(self) -> Checkpoint:
        return self.site.checkpoints[self.model]

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, with the bytes of the model's state."""
        return {**super().declared(), "total_bytes": self._declared_model.state}

    def standing_references(self) -> dict[str, Reference]:
        """Return the budgets; none if this run has another size or scale than the site declares."""
        if self._overridden.keys() & {
            "nodes",
            "tasks_per_node",
            "total_bytes",
            "transfer_bytes",
        }:
            return {}
        model, found = self._declared_model, {}
        for time, bandwidth, budget_s, key in (
            (SAVE_TIME, WRITE, model.save, "save"),
            (RESTART_TIME, READ, model.restart, "restart"),
        ):
            source = f"the budget of checkpoints.{self.model}.{key}"
            least = model.state / 2**20 / budget_s
            found[time.name] = Reference(budget_s, None, 0.0, time.unit, source)
            found[bandwidth.name] = Reference(least, 0.0, None, bandwidth.unit, source)
        return found

    def bytes_of_task(self) -> int:
        """Return a task's share of the state, rounded up: no byte of it is left out.

        Raises ValueError if the limits do not allow it.
        """
        step = self.total_tasks * self.transfer_bytes
        shares = -(-self.total_bytes // step)
        held, most = shares * step * self.sets, self.site.limits.case_bytes
        if held > most:
            raise ValueError(
                f"checkpoints.{self.model}.state is {format_bytes(self._declared_model.state)}: in whole "
                f"transfers of {self.total_tasks} task(s), {self.sets} set(s) of files hold {format_bytes(held)}, but "
                f"limits.case_bytes is {format_bytes(most)}: raise the limit for {type(self).__name__}, or leave the model out"
            )
        return int(shares * self.transfer_bytes)
