"""The program representation: expressions, statements, affine analysis, printer, interpreter.

Everything before text lives in these nodes.  Read in this order: expr, stmt, affine, interpreter.
"""
