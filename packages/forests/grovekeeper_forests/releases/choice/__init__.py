"""The choice of the best of several released models, which is a form of evaluation."""
