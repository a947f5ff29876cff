"""Numpy references of operators whose evaluation is no one call of numpy's.

In: arrays of any element type.  Out: arrays, computed in float64 (integers in int64) and returned
in the input's type.  They share no code with the operators.  Read next: `conv2d.py`.
"""
