"""Patterns of graphs: what they match, and parts made functions of their own.

Read next: `matching.py`.
"""
