"""One process of training runs: `python -m tests.train.worker '[[OUT, RECIPE, OVERRIDE, …], …]'`.

Several runs share a process, as most of its seconds go into starting it.
"""

import json
import sys

from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, train

if __name__ == "__main__":
    for out, name, *overrides in json.loads(sys.argv[1]):
        listener = Recorder()
        train(tiny_recipe(name, *overrides), out, dev=tiny_corpus(9, seed=1), listener=listener)
        sys.stdout.write(f"{out}: {len(listener.messages)} messages\n")
