"""Networks in files of other programs: ONNX in and out.

Read next: `onnx_import.py`, `onnx_export.py`.
"""
