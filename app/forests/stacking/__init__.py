"""Stacked forests: layers of trees, each of which sees what the layer before it would say of a row."""
