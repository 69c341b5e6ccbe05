"""Compiled loops over integer arrays: histograms, routing and prediction. Never a decision, never a random draw.

The modules here check arguments and allocate results; the loops are compiled and stand in
``app.forests.kernels.loops``, which is imported at the first call because the compiler takes 0.6 s and 150 MB to load.
"""
