import subprocess
import sys

import pytest

READING = "glocal.data.readers, glocal.vocabulary.label_space, glocal.data.tokens"


@pytest.mark.parametrize(
    ("imported", "heavy"),
    [
        (READING, "{'torch', 'transformers', 'datasets', 'simple_icd_10_cm'}"),
        ("glocal.data, glocal.vocabulary, glocal.cli.data", "{'numpy', 'pyarrow', 'scipy'}"),
    ],
)
def test_imports_stay_light(imported, heavy):
    code = (
        f"import sys, {imported}\n"
        f"heavy = {heavy} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
