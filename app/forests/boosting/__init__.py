"""Boosting with clipped gradients in exact integers: what a row contributes, what a leaf releases, what it scores.

Whatever a PRIVATE row contributes is an integer and a bit-exact function of that row and of what was released before:
no float, no library function, nothing that depends on a row's position or company. So adding a row leaves the integers
of every other row alone, which is part of the proof (docs/proofs/nbrt.md, section 4).
"""
