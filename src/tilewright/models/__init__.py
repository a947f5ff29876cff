"""Networks in files of other programs: ONNX in and out.

Read next: `onnx/importer.py`, `onnx/export.py`.
"""
