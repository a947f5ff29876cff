"""Libraries of matrices and PyTorch compute on one thread: several processes share the cores, and
threads that wait busily would take them from the others.

They read it when they are imported, so this is imported first; worker processes inherit it.
In: the environment.  Out: the same, where nobody said otherwise.
"""

import os

for _library in ("MKL", "OMP", "OPENBLAS"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
