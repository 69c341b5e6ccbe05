"""Serves the Open Inference Protocol, version 2: the same predictions as ``POST /models/{id}/predict``, in tensors."""
