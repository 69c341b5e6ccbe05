"""A profile: private bins, class counts (or mean and quantiles) and a size, which later
jobs reuse.
"""
