"""``rdt-mv``, ``rdt-ta``, ``rdt-pa`` and ``rdt-jagannathan``: random decision trees."""
