"""Implements ``rof-pca``, ``rof-lda``, ``mpsvm-t``, ``-p``, ``-n`` and ``hobraf``,
oblique forests, without privacy.
"""
