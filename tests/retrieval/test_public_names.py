import subprocess
import sys

import glocal.retrieval


def test_every_public_name_is_there():
    for name in glocal.retrieval.__all__:
        assert getattr(glocal.retrieval, name).__name__ == name
    assert set(glocal.retrieval.__all__) == set(glocal.retrieval._MODULES)


def test_a_teacher_is_imported_without_torch_transformers_faiss_or_gensim():
    code = (
        "import sys, glocal.retrieval, glocal.encoders.word_vectors\n"
        "glocal.retrieval.Teacher, glocal.retrieval.scope_recall\n"
        "heavy = {'torch', 'transformers', 'faiss', 'gensim'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
