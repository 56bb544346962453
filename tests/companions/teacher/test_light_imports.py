import subprocess
import sys


def test_a_teacher_is_imported_without_torch_transformers_faiss_or_gensim():
    code = (
        "import sys, glocal.companions.teacher.teacher_model, glocal.companions.teacher.recall\n"
        "import glocal.encoders.word_vectors\n"
        "heavy = {'torch', 'transformers', 'faiss', 'gensim'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
