"""Networks of PyTorch: exported programs, modules, and the backend of `torch.compile`.

Read next: `program.py`, `importer.py`, `ops/__init__.py`; `export.py` and `compile.py` are the only
modules that need PyTorch.
"""
