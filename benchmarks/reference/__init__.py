"""Reference runs of other codes on the protocol's splits; see the README beside."""
