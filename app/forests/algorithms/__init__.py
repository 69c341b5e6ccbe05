"""The training algorithms: each folder holds the price, the growth and the read-out of one algorithm or paper."""
