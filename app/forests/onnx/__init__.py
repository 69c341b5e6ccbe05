"""A released forest as an ONNX model, for people who have ONNX Runtime and none of this code.

Post-processing of one release (lemma L7, docs/proofs/lemmas.md): the file says what the artifact says, in another
language. One named input per column of the schema, clamping and coding inside the model, class probabilities as
doubles. The analyst's guide shows how to ask it.
"""
