"""Starts what runs on this machine: the render jobs of one team and the training of another."""

from __future__ import annotations

import subprocess
import sys

RENDER_CORES = ["1", "1"]


def main() -> int:
    # Each in a session of its own, as the scheduler of a cluster starts them.
    jobs = [subprocess.Popen([sys.executable, "render.py", core], start_new_session=True) for core in RENDER_CORES]
    try:
        return subprocess.call(["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"])
    finally:
        for job in jobs:
            job.kill()
            job.wait()


if __name__ == "__main__":
    sys.exit(main())
