"""Functional Relay: closures, recursion, data types and `match`, references, polymorphism.

Read next: `machine.py` (runs it), `infer.py` (its types), `standard.py` (lists, trees and such).
"""
