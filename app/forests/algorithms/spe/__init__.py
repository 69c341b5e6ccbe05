"""``spe``: a supervised ensemble of median trees."""
