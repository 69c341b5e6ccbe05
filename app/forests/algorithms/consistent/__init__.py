"""Implements forests without privacy that choose splits by the papers' rules: ``mrf-plain`` and its rivals."""
