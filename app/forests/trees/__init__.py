"""Tree code that several algorithms share: prices, growth, leaves and read-outs."""
