from training.shadowing import check_own_packages

check_own_packages()  # before any of them is imported, whichever command begins
