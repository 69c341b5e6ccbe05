"""The statistics of a dataset: noisy counts, sums, means and variances by public cells."""
