"""The parts that several algorithms share: prices of trees, growth, leaves and read-outs."""
