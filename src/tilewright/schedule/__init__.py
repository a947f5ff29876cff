"""Schedules, the loop tree behind them, spaces of decisions, templates and tasks.

Read in this order: steps, schedule, tree, legality, decision, space, trace, sketch, template, task.
"""
