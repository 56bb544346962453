"""One process of a training run: `python -m tests.train.worker OUT RECIPE [OVERRIDE …]`."""

import sys

from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, train

if __name__ == "__main__":
    out, name, *overrides = sys.argv[1:]
    listener = Recorder()
    train(tiny_recipe(name, *overrides), out, dev=tiny_corpus(9, seed=1), listener=listener)
    sys.stdout.write(f"messages: {len(listener.messages)}\n")
