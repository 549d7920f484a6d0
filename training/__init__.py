import training.commands  # noqa: F401 - first, as from then on signals are answered
from training.shadowing import check_extras, check_own_packages

check_own_packages()  # before any of them is imported, whichever command begins
check_extras("train")
