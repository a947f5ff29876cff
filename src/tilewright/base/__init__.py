"""Values every room shares: errors, element types, artefacts, the environment, the context.

Takes nothing from other rooms.
Read next: `dtype.py`, `errors.py`, `artifact.py`, then the room `ir`.
"""
