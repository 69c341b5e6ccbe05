"""``rpf``: the reweighted ℓ4 permute-and-flip forest."""
