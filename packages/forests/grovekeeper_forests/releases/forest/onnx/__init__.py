"""Exports a released forest as an ONNX model, which runs in ONNX Runtime without this
code.

Post-processing of one release (lemma L7, docs/proofs/lemmas.md): the file contains the
artifact in another format. The model has one named input per column of the schema,
clamps and encodes values itself, and returns class probabilities as doubles. The
analyst's guide shows how to run the model.
"""
