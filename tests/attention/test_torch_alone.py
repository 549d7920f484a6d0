"""`attention` needs PyTorch alone, and says what to install where it needs more."""

import subprocess
import sys
from pathlib import Path

BLOCKED = """
import runpy, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in %r:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
runpy.run_path(%r, run_name="__main__")
"""
PACKAGES = ("gymnasium", "h5py", "joblib", "matplotlib", "numpy", "pandas", "PIL", "pydantic")
PACKAGES = (
    *PACKAGES,
    "safetensors",
    "scipy",
    "sklearn",
    "timm",
    "torchvision",
    "transformers",
    "yaml",
)


def test_attention_works_where_nothing_but_pytorch_can_be_imported():
    code = BLOCKED % (PACKAGES, str(Path(__file__).with_name("torch_alone.py")))
    command = [sys.executable, "-W", "error", "-W", "ignore:Failed to initialize NumPy", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
