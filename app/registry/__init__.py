"""Models, profiles and evaluations: their rows, artifacts by digest, and a cache. Needs no table of other packages."""
