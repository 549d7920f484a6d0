import training.command.signals  # noqa: F401 - first, as from then on signals are answered
from training.command.shadowing import check_extras, check_own_packages

check_own_packages()  # before any of them is imported, whichever command begins
check_extras("train")
