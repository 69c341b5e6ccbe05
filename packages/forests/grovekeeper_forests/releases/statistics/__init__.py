"""The statistics of a dataset: noisy counts, sums, means, variances and quantiles by
public cells.
"""
