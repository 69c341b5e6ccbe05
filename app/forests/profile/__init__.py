"""Price, release and read profiles of datasets, which later jobs reuse at no privacy cost."""
