"""The stand-alone checker of ledger exports: ``python -m app.verifier FILE``.

It shares no code with the service. Everything here is the standard library, so that an auditor can copy this one
folder, read it in an hour and run it years later. What it knows of the ledger it knows from the published form of an
export: JSON Lines, a header line, then every entry in order, each carrying the hash of the one before it.
"""
