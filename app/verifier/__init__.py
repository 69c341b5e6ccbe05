"""The stand-alone checker of ledger exports: ``python -m app.verifier FILE``.

It shares no code with the service. Everything here is the standard library (checkpoints need ``cryptography`` too), so
that an auditor can copy this one folder, read it in an afternoon and run it years later. What it knows of the ledger it
knows from the published form of an export: JSON Lines, a header line, then every entry in order, each carrying the hash
of the one before it.

To be read in this order: ``canonical``, ``amounts``, ``form``, ``chain`` and ``reading`` are what all exports have in
common; ``export``, ``events``, ``bounds``, ``attested`` and ``prices`` what a dataset's entry says and costs;
``composition`` what joint cells carry; ``replay`` puts a dataset's account together. ``population``
and ``sums`` are the same for a population, ``largest`` and ``members`` compare it with its members. ``checkpoints``,
``tree`` and ``proofs`` are about what was signed, ``report`` and ``main`` about what is printed.
"""
