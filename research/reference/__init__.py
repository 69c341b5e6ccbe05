"""Contains reference runs of other codes on the protocol's splits; README.md describes
the files.
"""
