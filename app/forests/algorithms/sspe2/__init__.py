"""``sspe-2``: median trees for private labels."""
