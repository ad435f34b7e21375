"""For all tests: what a caller ignores (nohup, a shell's background) must reach what the tests start and signal."""

from __future__ import annotations

import signal

for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
