"""Networks as text that is read back: `relay.parse` is the door, `graph/printer.py` writes it.

Read next: `lexer.py`, `reader.py`, `operators.py`, `constants.py`.
"""
