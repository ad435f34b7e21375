"""An agent that attends a node while a command runs: ``attended.py STAGE DIRECTORY COMMAND...``; the status is the command's.

It answers witness.sh, as the agent of every node does, in the name spaces in which it was started.
"""

import os
import select
import subprocess
import sys

from iogauge.job.control_pipe import ControlPipe


def main(stage, directory, *words):
    place = os.getcwd()
    os.chdir(stage)
    bell = ControlPipe(directory)
    with subprocess.Popen(words, cwd=place) as process:
        while process.poll() is None:
            if select.select([bell], [], [], 0.02)[0]:
                for task in bell.answer():
                    print(f"task {task.process} {task.start}", flush=True)
    bell.close()
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
