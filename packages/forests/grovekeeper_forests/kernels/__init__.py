"""Calls compiled loops over integer arrays with checked arguments: sums by cell,
routing, gradients, prediction.

No module here makes a decision or a random draw. The modules check arguments and
allocate results; the loops are in ``grovekeeper_forests.kernels.compiled``. The first
call imports the loops of a module: importing the compiler takes 0.6 s and 150 MB, which
neither the API nor the command line should pay at start.
"""
