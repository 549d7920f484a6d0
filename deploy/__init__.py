"""Export of policies as stand-alone models, and the runtime that runs them on a robot.

`deploy.export` is the command; `deploy.runtime` needs NumPy and ONNX Runtime alone, so nothing is
imported here.
"""

__all__: list[str] = []
