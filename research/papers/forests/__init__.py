"""Grows the forests without privacy that private results are compared with; see
docs/references.md.

The service runs none of them: nothing leaves it without a charge. They read tables that
everybody has.
"""
