"""Reports and results made of random predictions: no training needed."""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from glocal.lab.experiment.jobs import JobState, Result
from glocal.lab.experiment.methods import RECIPE, Method
from glocal.predict.evaluation import evaluate_predictions
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.bands import Bands

COUNTS = np.array([3, 8, 15, 40, 60, 90, 150, 300])


def random_report(seed=0, experts=(), *, ks=(1, 3, 5), bands=None):
    random = np.random.default_rng(seed)
    gold = csr_matrix((random.random((30, len(COUNTS))) < 0.3).astype(np.float32))

    def predictions():
        indices = np.array([random.permutation(len(COUNTS)) for _ in range(30)])
        return Predictions.from_unsorted(indices, random.random(indices.shape).astype(np.float32))

    found = replace(predictions(), experts={name: predictions() for name in experts})
    bands = Bands() if bands is None else bands
    return evaluate_predictions(found, gold, counts=COUNTS, n_train=400, bands=bands, ks=ks)


def random_result(name, title, seed=0, experts=(), **changes):
    known = {
        "status": JobState.DONE,
        "split": "test",
        "cost": {"train_seconds": 12.5},
        "report": random_report(seed, experts).to_dict(),
        **changes,
    }
    method = Method(name, title, RECIPE, "me-xml", "glocal 0", {})
    return Result(method, trained_on="hash", measured_on="texts", **known)


def failed_result(name, title, error):
    return random_result(name, title, status=JobState.FAILED, error=error, report={}, cost={})
