"""One process of training: `python -m tests.cluster.fit_worker JSON`.

The JSON has `out`, and may have what is sharded (`labels`, `encoder`; without either, the documents
alone are divided), `recipe`, `overrides`, `resume`, `stop_at` (Ctrl-C at a step) and `kill_at`
(rank 1 is killed at a step).
"""

import functools
import json
import os
import signal
import sys

from glocal.cluster.sharded_training import fit_sharded
from glocal.errors import GlocalError, Interrupted
from glocal.train.loop import Loop
from glocal.train.run import fit
from tests.tiny import tiny_corpus, tiny_recipe


def act_at(step, action):
    """Have something done before the step after `step`."""
    run = Loop._step

    def acting(self, batches):
        if self.state.step == step:
            action()
        return run(self, batches)

    Loop._step = acting


def main(
    out, recipe="glocalxml", overrides=(), resume=False, stop_at=None, kill_at=None, **sharding
):
    if stop_at is not None:
        act_at(stop_at, lambda: signal.raise_signal(signal.SIGINT))
    if kill_at is not None and os.environ.get("RANK") == "1":
        act_at(kill_at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    run = functools.partial(fit_sharded, **sharding) if sharding else fit
    try:
        run(
            tiny_recipe(recipe, *overrides),
            tiny_corpus(),
            out=out,
            dev=tiny_corpus(9, seed=1),
            device="cpu",
            resume=resume,
        )
    except Interrupted:
        sys.stdout.write("stopped\n")
    except GlocalError as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which torchrun sends at the same time
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
