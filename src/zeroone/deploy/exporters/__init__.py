"""Exports: an integer network as ONNX, as C and as a page."""
