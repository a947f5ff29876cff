"""Device kinds and what code is generated for: `Target`, its limits.

Read next: `target.py`.
"""
