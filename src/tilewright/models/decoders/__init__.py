"""Language models that generate: from a folder of config.json and safetensors, or of a named size.

`config.py` reads what a model is, `graph.py` builds it over caches, `weights.py` reads or draws the
weights, `read.py` puts them together.
"""
