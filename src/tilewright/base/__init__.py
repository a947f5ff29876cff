"""Values every room shares: errors, targets with their limits, dtypes, artefacts, the context.

Takes nothing from other rooms.  Read next: `target.py`, then the room `ir`.
"""
