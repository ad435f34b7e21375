"""What ReFrame's backend asks of a job; see the package."""

import os


class FluxExecutor:
    """Submits nothing."""


class JobspecV1:
    """Writes down what ReFrame asks Flux for, in the file $FLUX_ASKED."""

    @classmethod
    def from_command(cls, command, num_tasks, cores_per_task):
        """A job of so many tasks and cores."""
        with open(os.environ["FLUX_ASKED"], "a") as asked:
            asked.write(
                f"{command[0]}: {num_tasks} task(s) of {cores_per_task} core(s)\n"
            )
        return cls()
