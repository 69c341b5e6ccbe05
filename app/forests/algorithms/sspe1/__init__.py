"""``sspe-1``: median trees from an unlabelled and a labelled dataset."""
