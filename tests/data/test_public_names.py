import subprocess
import sys

import pytest

import glocal.data
import glocal.labels


@pytest.mark.parametrize("package", [glocal.data, glocal.labels])
def test_every_public_name_is_there(package):
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    assert set(package.__all__) == set(package._MODULES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_reading_data_loads_neither_torch_nor_transformers():
    names = ", ".join(f"glocal.data.{name}" for name in glocal.data.__all__)
    code = (
        "import sys, glocal.data, glocal.labels, glocal.cli.data\n"
        f"{names}, glocal.labels.LabelSpace\n"
        "heavy = {'torch', 'transformers', 'datasets', 'simple_icd_10_cm'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_packages_loads_no_arrow():
    code = (
        "import sys, glocal.data, glocal.labels, glocal.cli.data\n"
        "heavy = {'numpy', 'pyarrow', 'scipy'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
