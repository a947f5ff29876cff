"""Models in ONNX, read and written.

Read next: `importer.py`, `ops/__init__.py`, `export.py`.
"""
