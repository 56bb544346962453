"""Groups of gloo processes on this machine."""

import subprocess
import sys

from tests.train.runs import ROOT, environment, free_port


def torchrun(ranks, *arguments, check=True):
    """Run a module with torchrun; returns the finished process.

    When a process is lost, torchrun looks only every two seconds and then stops the others, which
    leaves them time to say what they saw.
    """
    command = [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
        "--monitor-interval=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}",
        "-m", *map(str, arguments),
    ]  # fmt: skip
    finished = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert not check or finished.returncode == 0, finished.stderr[-4000:]
    return finished
