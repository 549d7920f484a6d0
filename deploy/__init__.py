"""From a checkpoint to a robot's computer: a model without this package, and what runs it.

`deploy.export` is the command; `deploy.runtime` needs NumPy and ONNX Runtime alone, so nothing is
imported here.
"""

__all__: list[str] = []
