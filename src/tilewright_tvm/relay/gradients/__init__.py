"""Gradients of networks: functions that give a result and its derivative by each parameter.

In: a function of relay.  Out: a function of relay, made of the same operators, so that it is
printed, built, tuned and differentiated like any other.
Read next: `backward.py`, which goes through the graph; `table.py`, the rule of each operator.
"""
