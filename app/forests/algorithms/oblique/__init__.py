"""Implements ``rof-pca``, ``rof-lda`` and ``mpsvm-t``, ``-p``, ``-n``, forests with oblique splits, without privacy."""
